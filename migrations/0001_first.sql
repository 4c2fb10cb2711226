-- The schema of the first run. Ids are UUIDv7 made by the server; times are
-- timestamptz. Constraints that can fail on a person's input have names, which
-- store maps to errors: messages of Postgres are never parsed.

-- The one clock of every rule. The setting is for tests only: it is an interval
-- added to the database clock (ALTER DATABASE … SET countersign.clock_offset).
create function app_now() returns timestamptz
language sql volatile parallel safe as $$
    select clock_timestamp()
         + coalesce(nullif(current_setting('countersign.clock_offset', true), ''), '0')::interval
$$;

create table users (
    id            uuid primary key,
    name          text not null,
    role          text not null check (role in ('viewer', 'approver', 'admin')),
    -- argon2 string; absent until the first link is used.
    password_hash text,
    disabled_at   timestamptz,
    created_at    timestamptz not null default app_now()
);
create unique index users_name_key on users (lower(name));

-- One-time links: the first admin, a new person, a reset. Stored hashed.
create table links (
    token_hash bytea primary key,
    -- Absent for the first admin, who does not exist yet.
    user_id    uuid references users on delete cascade,
    purpose    text not null check (purpose in ('first_admin', 'password')),
    created_at timestamptz not null default app_now(),
    expires_at timestamptz not null,
    used_at    timestamptz
);

create table login_sessions (
    id         uuid primary key,
    token_hash bytea not null unique,
    user_id    uuid not null references users on delete cascade,
    created_at timestamptz not null default app_now(),
    seen_at    timestamptz not null default app_now(),
    expires_at timestamptz not null
);
create index login_sessions_user on login_sessions (user_id);

create table workers (
    id             uuid primary key,
    name           text not null,
    -- Absent for the worker the server starts itself until it has a token.
    token_hash     bytea unique,
    revoked_at     timestamptz,
    created_at     timestamptz not null default app_now(),
    -- The link, as last known.
    epoch          bigint not null default 0,
    data_folder_id uuid,
    instance       uuid,
    version        text,
    environment    text,
    host           text,
    offers         jsonb not null default '[]',
    linked         boolean not null default false,
    link_changed_at timestamptz,
    heartbeat_at   timestamptz
);
create unique index workers_name_key on workers (lower(name));

create table agents (
    id                 uuid primary key,
    worker_id          uuid not null references workers,
    name               text not null,
    harness            text not null,
    folder             text not null,
    mode               text not null,
    hitl_timeout_s     bigint not null default 900,
    waits_for_continue boolean not null default false,
    created_at         timestamptz not null default app_now()
);
create unique index agents_name_key on agents (lower(name));
create index agents_worker on agents (worker_id);

create table sessions (
    id             uuid primary key,
    agent_id       uuid not null references agents,
    owner_id       uuid not null references users,
    title          text not null,
    private        boolean not null default false,
    -- The harness's own id, for resuming it.
    native_session text,
    -- The last event stored of this session's sequence.
    stored_seq     bigint not null default 0,
    created_at     timestamptz not null default app_now(),
    updated_at     timestamptz not null default app_now()
);
create index sessions_updated on sessions (updated_at desc, id desc);

create table runs (
    id             uuid primary key,
    session_id     uuid not null references sessions,
    user_id        uuid not null references users,
    prompt         text not null,
    status         text not null default 'pending'
        check (status in ('pending', 'running', 'paused', 'completed', 'cancelled', 'error')),
    detail         text,
    -- Approvals that wait for a person. Kept here, per run, so that the last
    -- decision can continue the run in one statement.
    open_approvals integer not null default 0 check (open_approvals >= 0),
    created_at     timestamptz not null default app_now(),
    started_at     timestamptz,
    -- The worker has journalled the prompt.
    prompted_at    timestamptz,
    cancel_asked_at timestamptz,
    -- The worker has confirmed the stop, or nothing was left to stop.
    cancel_settled_at timestamptz,
    ended_at       timestamptz
);
create unique index runs_one_live on runs (session_id) where status in ('running', 'paused');
create index runs_session on runs (session_id, id);
create index runs_unsettled on runs (session_id)
    where status in ('pending', 'running', 'paused') or (cancel_asked_at is not null and cancel_settled_at is null);

create table run_events (
    run_id uuid not null references runs,
    seq    bigint not null,
    at     timestamptz not null,
    body   jsonb not null,
    primary key (run_id, seq)
);

create table approvals (
    id            uuid primary key,
    run_id        uuid not null references runs,
    session_id    uuid not null references sessions,
    agent_id      uuid not null references agents,
    worker_id     uuid not null references workers,
    incarnation   uuid not null,
    request_key   text not null,
    harness       text not null,
    tool          text not null,
    folder        text not null,
    sub_agent     text,
    call_id       text,
    mode          text not null,
    -- The native input as received. The digest is over these bytes.
    input         bytea not null,
    action_digest bytea not null check (length(action_digest) = 32),
    words         text,
    options       jsonb not null default '[]',
    takes_message boolean not null default false,
    -- What lists show, made from the input when it was stored.
    kind          text not null,
    title         text not null,
    findings      integer not null default 0,
    checked       boolean not null,
    after_seq     bigint not null,
    status        text not null default 'pending'
        check (status in ('pending', 'approved', 'rejected', 'expired', 'cancelled')),
    closed_reason text,
    created_at    timestamptz not null default app_now(),
    expires_at    timestamptz not null,
    closed_at     timestamptz,
    constraint approvals_request_key unique (worker_id, request_key)
);
create index approvals_inbox on approvals (status, created_at, id);
create index approvals_run on approvals (run_id, id);
create index approvals_session_pending on approvals (session_id) where status = 'pending';
create index approvals_expiry on approvals (expires_at) where status = 'pending';

-- The outbox. One decision that counts for each approval; a void one is kept.
create table decisions (
    id            uuid primary key,
    approval_id   uuid not null references approvals,
    outcome       text not null check (outcome in ('approve', 'reject', 'expire')),
    option_id     text,
    edited_input  text,
    message       text,
    stop          boolean not null default false,
    action_digest bytea not null,
    answer_digest bytea not null,
    -- Nobody where it expired.
    decided_by    uuid references users,
    decided_at    timestamptz not null default app_now(),
    -- Absent while it waits for Continue Run.
    continued_at  timestamptz,
    delivery      text not null default 'queued' check (delivery in
        ('queued', 'sent', 'applied', 'effect', 'void', 'not_applied', 'outcome_unknown')),
    sent_at       timestamptz,
    applied_at    timestamptz,
    effect_at     timestamptz,
    note          text
);
create unique index decisions_one_counts on decisions (approval_id) where delivery <> 'void';
create index decisions_unsettled on decisions (approval_id) where delivery in ('queued', 'sent', 'applied');

create table audit (
    id       uuid primary key,
    at       timestamptz not null default app_now(),
    -- Nobody for what happened by itself.
    user_id  uuid references users,
    -- The noun and its id: approval, run, agent, worker, user.
    noun     text not null,
    noun_id  uuid not null,
    -- A phrase that follows a name: "approved it".
    what     text not null,
    words    text
);
create index audit_noun on audit (noun, noun_id, id);

-- Answers that are more than yes or no: edited input, answers to questions, what is
-- allowed besides for the life of the agent's process; and agents that ask for everything.

alter table approvals
    -- What kind of answer it takes.
    add column reply text not null default 'decision'
        check (reply in ('decision', 'answers', 'plan', 'refusal')),
    -- The harness takes another input than the one it asked for.
    add column takes_edit boolean not null default false,
    -- What the harness suggests to allow besides.
    add column grants jsonb not null default '[]',
    -- What the sub-agent is called, where the harness says more than its id.
    add column sub_agent_title text;

alter table decisions
    -- Answers to questions, as JSON text.
    add column content text,
    -- The native texts of the grants given.
    add column grants text[] not null default '{}';

alter table agents
    add column asks_everything boolean not null default false;

-- Work of the agent goes on in the background although its turn is over.
alter table runs
    add column in_background boolean not null default false;

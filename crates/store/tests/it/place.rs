//! A database with people, a linked worker and an agent: where tests begin.

use domain::{
    agent::{AgentEdit, Asks, Mode},
    approval::{AskOption, RequestKey},
    decision::Outcome,
    digest::{ActionDigest, ActionFields},
    event::EventBody,
    id::{AgentId, ApprovalId, Incarnation, RunId, SessionId, WorkerId},
    time::Timestamp,
    user::{Caller, Role},
    worker::{Capabilities, HarnessOffer, Permissions},
};
use store::{
    MIGRATOR, Store,
    approval::{Asked, Paused, Resolve},
    event::Arrived,
    worker::{Hello, Linked},
};
use uuid::Uuid;

pub struct Place {
    pub store: Store,
    pub admin: Caller,
    pub worker: WorkerId,
    pub epoch: i64,
    pub agent: AgentId,
    pub incarnation: Incarnation,
    // Dropped last: the database goes with it.
    _database: cluster::scratch::Database,
}

impl Place {
    pub async fn new() -> Self {
        let database = cluster::scratch::database(&MIGRATOR).await;
        let store = Store::connect(database.options(), 8, "http://127.0.0.1:7717", Uuid::now_v7)
            .await
            .expect("a connection");
        let link = store::user::first_admin_link(&store).await.expect("a link");
        let id = store::user::become_first_admin(&store, &link, "Ana", "hash").await.expect("an admin");
        let admin = Caller { id, name: "Ana".into(), role: Role::Admin };
        let token = store::worker::local_token(&store).await.expect("a token");
        let worker = store::worker::find(&store, &token).await.expect("a look-up").expect("the worker");
        let epoch = relink(&store, worker, Uuid::nil()).await.expect("an epoch");
        let agent = store::agent::list(&store).await.expect("agents")[0].id;
        Self {
            store,
            admin,
            worker,
            epoch,
            agent,
            incarnation: Incarnation(Uuid::now_v7()),
            _database: database,
        }
    }

    /// A person with a password, and their role.
    pub async fn person(&self, name: &str, role: Role) -> Caller {
        let id = store::user::add(&self.store, &self.admin, name, role).await.expect("a person");
        sqlx::query("update users set password_hash = 'hash' where id = $1")
            .bind(id.0)
            .execute(self.store.pool())
            .await
            .expect("a password");
        Caller { id, name: name.into(), role }
    }

    /// A session whose first run is handed to the worker.
    pub async fn running(&self) -> (SessionId, RunId) {
        self.running_as(&self.admin, false).await
    }

    pub async fn running_as(&self, caller: &Caller, private: bool) -> (SessionId, RunId) {
        let session = store::session::start(&self.store, caller, self.agent, "do it", private)
            .await
            .expect("a session");
        let due = store::run::due_prompts(&self.store, self.worker).await.expect("prompts");
        let run = due.iter().find(|d| d.session == session).expect("the prompt").run;
        store::run::prompted(&self.store, run).await.expect("prompted");
        (session, run)
    }

    pub fn key(&self, native: &str) -> RequestKey {
        RequestKey { incarnation: self.incarnation, native_id: native.into() }
    }

    pub fn digest(key: &RequestKey, input: &[u8]) -> ActionDigest {
        ActionDigest::of(ActionFields {
            request_key: &key.to_string(),
            harness: "demo",
            tool: "append",
            folder: "/w",
            sub_agent: None,
            input,
        })
    }

    pub async fn ask(&self, session: SessionId, run: RunId, native: &str, input: &[u8]) -> Paused {
        self.try_ask(session, run, native, input).await.expect("an answer")
    }

    pub async fn try_ask(
        &self,
        session: SessionId,
        run: RunId,
        native: &str,
        input: &[u8],
    ) -> store::Result<Paused> {
        let key = self.key(native);
        let options = [
            AskOption { id: "yes".into(), name: "Allow once".into(), kind: "allow_once".into() },
            AskOption { id: "no".into(), name: "Reject".into(), kind: "reject_once".into() },
        ];
        let asked = Asked {
            session,
            run,
            request_key: &key,
            after_seq: 0,
            harness: "demo",
            tool: "append",
            folder: "/w",
            sub_agent: None,
            call_id: Some(native),
            mode: "ask",
            input,
            action_digest: Self::digest(&key, input),
            words: None,
            options: &options,
            sub_agent_title: None,
            grants: &[],
            takes: store::approval::Takes::default(),
            native_deadline_ms: None,
        };
        store::approval::pause(&self.store, self.worker, self.epoch, asked).await
    }

    /// An approval that waits.
    pub async fn pending(&self, session: SessionId, run: RunId, native: &str) -> ApprovalId {
        match self.ask(session, run, native, br#"{"path":"/w/a","content":"x"}"#).await {
            Paused::Stored { approval, .. } => approval,
            other => panic!("not stored: {other:?}"),
        }
    }

    pub async fn resolve(&self, caller: &Caller, id: ApprovalId, outcome: Outcome) -> store::Result<()> {
        let digest = store::approval::read(&self.store, caller, id).await?.digest;
        let asked =
            Resolve { approval: id, action_digest: digest, given: domain::approval::Given::plain(outcome) };
        store::approval::resolve(&self.store, caller, asked).await.map(drop)
    }

    pub async fn status(&self, run: RunId) -> String {
        self.one("select status from runs where id = $1", run.0).await
    }

    pub async fn approval_status(&self, id: ApprovalId) -> String {
        self.one("select status from approvals where id = $1", id.0).await
    }

    pub async fn delivery(&self, id: ApprovalId) -> String {
        self.one("select delivery from decisions where approval_id = $1 and delivery <> 'void'", id.0).await
    }

    pub async fn one(&self, sql: &'static str, id: Uuid) -> String {
        sqlx::query_scalar(sql).bind(id).fetch_one(self.store.pool()).await.expect("a row")
    }

    pub async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(self.store.pool()).await.expect("a count")
    }

    /// Moves this database's clock.
    pub async fn later(&self, seconds: i64) {
        let name: String =
            self.one("select current_database()::text || substr($1::text, 1, 0)", Uuid::nil()).await;
        let sql = format!("alter database \"{name}\" set countersign.clock_offset = '{seconds} seconds'");
        sqlx::query(sqlx::AssertSqlSafe(sql)).execute(self.store.pool()).await.expect("a setting");
        // The setting counts for new connections.
        let pool = self.store.pool();
        let sql = "select pg_terminate_backend(pid) from pg_stat_activity
                   where datname = current_database() and pid <> pg_backend_pid()";
        let _ = sqlx::query(sql).execute(pool).await;
        let sql = format!("set countersign.clock_offset = '{seconds} seconds'");
        for _ in 0..20 {
            let _ = sqlx::query(sqlx::AssertSqlSafe(sql.clone())).execute(pool).await;
        }
    }

    pub async fn events(
        &self,
        session: SessionId,
        events: &[(i64, RunId, EventBody)],
    ) -> store::event::Stored {
        let arrived: Vec<Arrived> = events
            .iter()
            .map(|(seq, run, body)| Arrived { seq: *seq, run: *run, at: Timestamp(0), body: body.clone() })
            .collect();
        store::event::store_all(&self.store, self.worker, self.epoch, session, &arrived)
            .await
            .expect("stored")
    }

    pub async fn edit_agent(&self, change: impl FnOnce(&mut AgentEdit)) {
        let agent = store::agent::list(&self.store).await.expect("agents").remove(0);
        let mut edit = AgentEdit {
            name: agent.name,
            folder: agent.folder,
            mode: agent.mode,
            asks_everything: false,
            never_asks_confirmed: false,
            hitl_timeout_s: agent.hitl_timeout_s,
            waits_for_continue: agent.waits_for_continue,
        };
        change(&mut edit);
        store::agent::edit(&self.store, &self.admin, self.agent, &edit).await.expect("edited");
    }
}

pub fn said(text: &str) -> EventBody {
    EventBody::Said { text: text.into(), sub_agent: None }
}

/// Links the worker again; `None` where another data folder holds the lease.
pub async fn relink(store: &Store, worker: WorkerId, data_folder_id: Uuid) -> Option<i64> {
    let offers = [HarnessOffer {
        id: "demo".into(),
        title: "Demo agent".into(),
        version: "0".into(),
        capabilities: Capabilities {
            permissions: Some(Permissions { native: true, held: true, ..Default::default() }),
            ..Default::default()
        },
        modes: vec![Mode { id: "ask".into(), title: "Asks".into(), asks: Asks::AsNeeded }],
        default_mode: "ask".into(),
        default_folder: "/w".into(),
        problem: None,
    }];
    let hello = Hello {
        data_folder_id,
        instance: Uuid::now_v7(),
        host: "here",
        version: "0",
        environment: "local",
        offers: &offers,
    };
    match store::worker::link(store, worker, hello).await.expect("linked") {
        Linked::Yes { epoch, .. } => Some(epoch),
        Linked::Leased { .. } | Linked::Revoked => None,
    }
}

pub fn conflict(result: store::Result<()>) -> (Option<String>, String) {
    match result.expect_err("a refusal").into_failure() {
        domain::failure::Failure::Conflict { who, what } => (who, what),
        other => panic!("not a conflict: {other:?}"),
    }
}

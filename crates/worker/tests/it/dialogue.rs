//! A whole dialogue, gone on with as the real server would whatever dies or is cut:
//! a prompt, one request, what a person decides, and the end. What must hold of it is
//! said once, in [`Dialogue::holds`].

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use domain::{event::EventBody, id::RunId, run::RunStatus};
use futures::{StreamExt as _, stream};
use link::message::{Cancel, EffectKind, PromptOutcome, Resolve, ResolveOutcome};
use uuid::Uuid;
use worker::journal::{End, Prompted, State};

use crate::world::{World, approve, reject};

/// What a person does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    Approve,
    Reject,
    Cancel,
    RejectAndStop,
}

/// Which harness is talked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agent {
    /// A shell script that speaks ACP.
    Shell,
    /// The double that speaks Claude's control protocol.
    Claude,
}

impl Agent {
    /// Whether it can be talked with here; says so where it cannot.
    pub fn is_there(self) -> bool {
        self == Self::Shell || double().is_some()
    }
}

pub struct Dialogue {
    pub world: World,
    agent: Agent,
    course: Course,
    text: String,
    /// What was done to it, for a failure's message.
    label: String,
    /// Where the second worker dies, after the first one has.
    pub dies_again: Option<String>,
    /// How often the worker died.
    pub deaths: u32,
    /// The harness is killed too when the worker has died, before the next one starts.
    pub harness_dies: bool,
    /// What the dead worker's journal came to then.
    left: Option<State>,
    run: RunId,
    outcome: Option<ResolveOutcome>,
}

/// What is said with a refusal.
const WORDS: &str = "Not this.";

/// How long one dialogue may take, deaths and all.
const PATIENCE: Duration = Duration::from_mins(1);

/// An agent that asks once. An answer to a request it has an answer to is dropped, as by
/// every real one, and noted.
const SCRIPT: &str = r#"echo "$line" >> prompts
ask 7 one
while read -r line; do
  case "$line" in
    *session/cancel*) echo '{"jsonrpc":"2.0","id":4,"result":{"stopReason":"cancelled"}}' ;;
    *'"id":7'*)
      [ -n "$answered" ] && { echo "$line" >> doubled; continue; }
      answered=1
      case "$line" in
        *'"optionId":"a"'*) echo ran >> effects; result c7; OVER ;;
        *'"optionId":"r"'*) echo refused >> refusals; refused c7; OVER ;;
      esac ;;
  esac
done"#;

/// The double of Claude Code, where it was built.
pub fn double() -> Option<PathBuf> {
    let path =
        PathBuf::from(env!("CARGO_BIN_EXE_countersign-worker")).with_file_name("countersign-scripted-claude");
    if path.is_file() {
        return Some(path);
    }
    crate::skipped("countersign-scripted-claude is not built, so its dialogue was not tested here");
    None
}

/// A world with the double of Claude Code, which is there, and without a worker.
pub async fn claude() -> World {
    let double = double().expect("the double is there");
    let env = vec![("CLAUDE_BIN".to_owned(), double.display().to_string())];
    let mut world = World::without_worker("claude", "default", env).await;
    let home = world.folder.join("home").display().to_string();
    world.env.push(("CLAUDE_CONFIG_DIR".to_owned(), home));
    world
}

impl Dialogue {
    /// A dialogue whose worker is not started yet, with an agent that is there.
    pub async fn new(agent: Agent, course: Course, label: String) -> Self {
        let stops = course == Course::RejectAndStop;
        let (world, text) = match agent {
            Agent::Shell => {
                let script = SCRIPT.replace("OVER", if stops { ":" } else { "over" });
                (World::scripted_without_worker(&script).await, "go".to_owned())
            }
            Agent::Claude => {
                let world = claude().await;
                let ledger = world.folder.join("work/ledger").display().to_string();
                let rest = if stops { r#",{"wait":60000}"# } else { "" };
                let text =
                    format!(r#"script:{{"ledger":"{ledger}","do":[{{"ask":{{"command":"rm x"}}}}{rest}]}}"#);
                (world, text)
            }
        };
        Self {
            world,
            agent,
            course,
            text,
            label,
            dies_again: None,
            deaths: 0,
            harness_dies: false,
            left: None,
            run: RunId(Uuid::now_v7()),
            outcome: None,
        }
    }

    fn decision(&self, asked: &Asked) -> Resolve {
        let option = |id| (self.agent == Agent::Shell).then_some(id);
        let words = (self.agent == Agent::Claude).then_some(WORDS);
        let mut answer = match self.course {
            Course::Approve => approve(option("a")),
            _ => reject(option("r"), words),
        };
        answer.stop = self.course == Course::RejectAndStop;
        self.world.decision(asked, answer)
    }

    /// Plays it to its end. A worker that dies is started again.
    pub async fn play(&mut self) {
        let until = Instant::now() + PATIENCE;
        let (mut accepted, mut stopped, mut decision) = (false, false, None::<Resolve>);
        loop {
            assert!(Instant::now() < until, "{}: it does not end: {:#?}", self.label, self.seen());
            if self.world.has_died() {
                self.deaths += 1;
                if self.harness_dies && self.deaths == 1 {
                    self.world.kill_holders().await;
                    self.left = Some(self.world.journaled());
                }
                let again = self.dies_again.take().map(|at| ("COUNTERSIGN_TEST_DIE", at));
                self.world.spawn(again.as_slice());
            }
            let (asked, ended, told) = self.look();
            let server = &self.world.server;
            if !accepted {
                let prompt = self.world.prompting(self.run, &self.text);
                if let Some(Ok(reply)) = server.try_call(&prompt).await {
                    assert_ne!(reply.outcome, PromptOutcome::Refused, "{}: {:?}", self.label, reply.why);
                    accepted = true;
                }
            } else if let Some(asked) = &asked {
                if self.course == Course::Cancel {
                    if !stopped && !ended {
                        let cancel = Cancel { key: self.world.session, epoch: server.epoch(), run: self.run };
                        stopped = matches!(server.try_call(&cancel).await, Some(Ok(_)));
                    }
                } else if self.outcome.is_none() {
                    let mut resolve = decision.take().unwrap_or_else(|| self.decision(asked));
                    resolve.epoch = server.epoch();
                    match server.try_call(&resolve).await {
                        Some(Ok(reply)) if reply.outcome != ResolveOutcome::Fenced => {
                            self.outcome = Some(reply.outcome);
                        }
                        _ => decision = Some(resolve),
                    }
                }
            }
            let decided = self.course == Course::Cancel || self.outcome.is_some();
            if ended && (asked.is_none() || (told && decided)) {
                return;
            }
            self.world.server.changed().await;
        }
    }

    /// The request, whether the run ended, and whether it was told what became of the request.
    fn look(&self) -> (Option<Asked>, bool, bool) {
        let seen = self.world.server.seen.lock().unwrap();
        let asked = seen.requests.first().map(|r| (r.clone(), seen.approvals[0].1));
        let ended = seen.events.iter().any(|e| matches!(e.body, EventBody::Ended { .. }));
        let told = asked.as_ref().is_some_and(|(r, _)| {
            seen.effects.iter().any(|(k, _)| *k == r.request_key)
                || seen.withdrawn.iter().any(|w| w.request_key == r.request_key)
        });
        (asked, ended, told)
    }

    fn seen(&self) -> (Vec<EventBody>, usize, Option<ResolveOutcome>) {
        let seen = self.world.server.seen.lock().unwrap();
        (seen.events.iter().map(|e| e.body.clone()).collect(), seen.requests.len(), self.outcome)
    }

    /// Lines of a file the agent itself has written, outside of the product.
    fn count(&self, name: &str, word: &str) -> usize {
        self.world.file(name).map_or(0, |text| text.lines().filter(|l| l.contains(word)).count())
    }

    fn prompts(&self) -> usize {
        match self.agent {
            Agent::Shell => self.count("prompts", ""),
            Agent::Claude => {
                let kept = std::fs::read_dir(self.world.folder.join("home/scripted-sessions"));
                let texts = kept.into_iter().flatten().flatten();
                texts.map(|f| std::fs::read_to_string(f.path()).unwrap().lines().count()).sum()
            }
        }
    }

    /// How many processes work in the agent's folder: none may be left of an earlier start.
    fn processes(&self) -> usize {
        let work = self.world.folder.join("work").canonicalize().unwrap();
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        all.filter(|p| std::fs::read_link(p.path().join("cwd")).is_ok_and(|cwd| cwd == work)).count()
    }

    fn effects(&self) -> usize {
        match self.agent {
            Agent::Shell => self.count("effects", ""),
            Agent::Claude => self.count("ledger", r#""became":"ran""#),
        }
    }

    /// Refusals the agent has seen as such, in the person's words where it takes words.
    fn refusals(&self) -> usize {
        match self.agent {
            Agent::Shell => self.count("refusals", ""),
            Agent::Claude => self.count("ledger", &format!(r#""reason":"{WORDS}""#)),
        }
    }

    /// How the run was said to have ended, each time that was said.
    fn ends(&self) -> Vec<(RunStatus, Option<String>)> {
        let seen = self.world.server.seen.lock().unwrap();
        let ends = seen.events.iter().filter_map(|e| match &e.body {
            EventBody::Ended { status, detail } => Some((*status, detail.clone())),
            _ => None,
        });
        ends.collect()
    }

    /// How it ends where nothing of the agent dies.
    const fn usual_end(&self) -> RunStatus {
        match self.course {
            Course::Approve | Course::Reject => RunStatus::Completed,
            Course::Cancel | Course::RejectAndStop => RunStatus::Cancelled,
        }
    }

    /// What must hold after a dialogue whose harness was killed together with its worker,
    /// as that worker's journal says how far it had come. Gives what became of the request.
    pub fn holds_though_gone(&self) -> Option<EffectKind> {
        let nothing_handed_over = |left: &&State| {
            left.over.is_empty() && left.run.as_ref().is_none_or(|r| r.prompted == Prompted::Accepted)
        };
        let Some(left) = self.left.as_ref().filter(|left| !nothing_handed_over(left)) else {
            // A new process was given all of it.
            self.holds();
            return None;
        };
        let label = &self.label;
        assert!(self.prompts() <= 1, "{label}: prompts handed over");
        assert_eq!(self.processes(), 0, "{label}: processes of the agent");
        assert_eq!(self.count("doubled", ""), 0, "{label}: answers given twice");
        let may_run = self.course == Course::Approve;
        assert!(self.effects() <= usize::from(may_run), "{label}: effects");
        let status = match &left.run {
            None => self.usual_end(),
            Some(run) if run.cancelling => RunStatus::Cancelled,
            Some(_) => RunStatus::Error,
        };
        let ends = self.ends();
        assert!(matches!(&ends[..], [(only, _)] if *only == status), "{label}: {status:?}, {ends:?}");
        let seen = self.world.server.seen.lock().unwrap();
        let starts = seen.events.iter().filter(|e| matches!(e.body, EventBody::Started { .. })).count();
        assert!(seen.gaps == 0 && starts <= 1, "{label}: {:#?}", seen.events);
        assert!(seen.requests.len() <= 1, "{label}: requests shown");
        let told: Vec<EffectKind> = seen.effects.iter().map(|(_, effect)| *effect).collect();
        let given = self.outcome;
        let Some(request) = left.requests.front() else {
            assert!(seen.requests.is_empty() && told.is_empty(), "{label}: {told:?}");
            assert_eq!(self.effects() + self.refusals(), 0, "{label}: answers given");
            return None;
        };
        let expected = match (&request.intent, &request.end) {
            (Some(_), None) => EffectKind::Unknown,
            (Some(_), Some(End::Effect(effect))) => *effect,
            (None, None | Some(End::Withdrawn { .. })) => {
                assert_eq!(self.effects() + self.refusals(), 0, "{label}: answers given");
                assert!(told.is_empty(), "{label}: {told:?}");
                let gone = request.end.is_none();
                let withdrawn = seen.withdrawn.iter().all(|w| w.execution_gone || !gone);
                assert!(withdrawn && (seen.requests.is_empty() || !seen.withdrawn.is_empty()), "{label}");
                assert!(given.is_none_or(|o| o == ResolveOutcome::NativeGone), "{label}: {given:?}");
                return None;
            }
            (intent, end) => panic!("{label}: {intent:?}, {end:?}"),
        };
        assert!(!told.is_empty() && told.iter().all(|e| *e == expected), "{label}: {expected:?}, {told:?}");
        assert!(seen.withdrawn.is_empty(), "{label}: {:?}", seen.withdrawn);
        let settled = match given.unwrap() {
            ResolveOutcome::Applied => true,
            // It had reached the process, of which it was not known yet that it is gone.
            ResolveOutcome::AlreadyApplied => request.applied || expected != EffectKind::Unknown,
            ResolveOutcome::OutcomeUnknown => expected == EffectKind::Unknown,
            _ => false,
        };
        assert!(settled, "{label}: {given:?}");
        Some(expected)
    }

    /// What must hold after a dialogue in which the harness itself was left alone.
    pub fn holds(&self) {
        let label = &self.label;
        let ends = self.ends();
        let seen = self.world.server.seen.lock().unwrap();
        let starts = seen.events.iter().filter(|e| matches!(e.body, EventBody::Started { .. })).count();
        let alarms: Vec<_> =
            seen.events.iter().filter(|e| matches!(e.body, EventBody::Notice { alarm: true, .. })).collect();
        assert_eq!(seen.gaps, 0, "{label}: events are missing");
        let seqs: Vec<i64> = seen.events.iter().map(|e| e.seq).collect();
        assert_eq!(seqs, (1..=i64::try_from(seqs.len()).unwrap()).collect::<Vec<_>>(), "{label}");
        assert_eq!(self.prompts(), 1, "{label}: prompts handed over");
        assert_eq!(starts, 1, "{label}: {:#?}", seen.events);
        assert_eq!(seen.requests.len(), 1, "{label}: requests shown");
        assert!(alarms.is_empty(), "{label}: {alarms:?}");
        assert_eq!(self.count("doubled", ""), 0, "{label}: answers given twice");
        assert_eq!(self.processes(), 1, "{label}: processes of the agent");
        assert_eq!(ends, [(self.usual_end(), None)], "{label}");
        let effects = usize::from(self.course == Course::Approve);
        assert_eq!(self.effects(), effects, "{label}: effects");
        // A refusal that stops the run is seen as one, before the run is stopped.
        let refusals = usize::from(matches!(self.course, Course::Reject | Course::RejectAndStop));
        assert_eq!(self.refusals(), refusals, "{label}: refusals");
        let told: Vec<EffectKind> = seen.effects.iter().map(|(_, effect)| *effect).collect();
        let expected = match self.course {
            Course::Approve => EffectKind::Ran,
            _ => EffectKind::Refused,
        };
        if self.course == Course::Cancel {
            assert!(!seen.withdrawn.is_empty() && told.is_empty(), "{label}: {told:?}");
            assert!(seen.withdrawn.iter().all(|w| !w.execution_gone), "{label}");
        } else {
            assert!(!told.is_empty() && told.iter().all(|e| *e == expected), "{label}: {told:?}");
            assert!(seen.withdrawn.is_empty(), "{label}: {:?}", seen.withdrawn);
            let outcome = self.outcome.unwrap();
            let given = matches!(outcome, ResolveOutcome::Applied | ResolveOutcome::AlreadyApplied);
            assert!(given, "{label}: {outcome:?}");
        }
    }
}

/// A request as the server stored it.
pub type Asked = (link::message::PermissionRequest, domain::id::ApprovalId);

/// Tries 1, 2, 3 and so on, some at a time, until nothing more happens: `once` says
/// whether something did. Gives how often it did.
pub async fn until_over<F: Future<Output = bool>>(once: impl Fn(u32) -> F) -> u32 {
    const AT_A_TIME: u32 = 4;
    let (mut first, mut happened) = (1, 0);
    loop {
        let tried: Vec<bool> = stream::iter(first..first + AT_A_TIME)
            .map(&once)
            .buffer_unordered(AT_A_TIME as usize)
            .collect()
            .await;
        happened += u32::try_from(tried.iter().filter(|t| **t).count()).unwrap();
        if tried.contains(&false) {
            return happened;
        }
        first += AT_A_TIME;
        assert!(first < 500, "it never ends");
    }
}

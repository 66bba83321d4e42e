//! The elector's shell against the scripted API server; time is the runtime's and moves by itself.

use super::*;
use crate::testing::{ApiServer, Fault, Link, Verb};

const NS: &str = "operators";
const NAME: &str = "undb-operator";

struct Candidate {
    link: Link,
    end: CancellationToken,
    told: watch::Receiver<Leadership>,
}

fn candidate(server: &ApiServer, identity: &str) -> Candidate {
    let (client, link) = server.client(NS);
    let (told, heard) = watch::channel(Leadership::Following);
    let end = CancellationToken::new();
    let elector = Elector::new(identity, Terms::default());
    tokio::spawn(run(Api::namespaced(client, NS), NAME.into(), elector, end.clone(), told));
    Candidate { link, end, told: heard }
}

impl Candidate {
    async fn until(&mut self, wanted: impl Fn(&Leadership) -> bool) -> Leadership {
        self.told.wait_for(|now| wanted(now)).await.expect("the elector runs").clone()
    }

    async fn leads(&mut self) -> u64 {
        let leading = |now: &Leadership| matches!(now, Leadership::Leading { .. });
        match self.until(leading).await {
            Leadership::Leading { transitions } => transitions,
            other => panic!("{other:?}"),
        }
    }
}

fn stored_holder(server: &ApiServer) -> String {
    let lease = server.get("leases.coordination.k8s.io", NS, NAME).expect("a Lease");
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn one_leads_and_the_other_follows_at_once_when_it_gives_the_lease_back() {
    let server = ApiServer::default();
    let mut first = candidate(&server, "first");
    assert_eq!(first.leads().await, 0);
    let mut second = candidate(&server, "second");
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(*second.told.borrow(), Leadership::Following);
    assert_eq!(stored_holder(&server), "first");
    let before = Instant::now();
    first.end.cancel();
    first.until(|now| *now == Leadership::Over).await;
    assert_eq!(second.leads().await, 1);
    assert!(before.elapsed() < Duration::from_secs(5), "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_holder_whose_calls_hang_has_lost_before_another_leads() {
    let server = ApiServer::default();
    let mut first = candidate(&server, "first");
    first.leads().await;
    let mut second = candidate(&server, "second");
    tokio::time::sleep(Duration::from_secs(60)).await;
    first.link.fail(Fault::Hang, 0, usize::MAX, |_| true);
    let lost = async {
        first.until(|now| matches!(now, Leadership::Lost { .. })).await;
        Instant::now()
    };
    let led = async {
        second.leads().await;
        Instant::now()
    };
    let (lost, led) = tokio::join!(lost, led);
    assert!(lost < led, "lost at {lost:?}, led at {led:?}");
}

#[tokio::test(start_paused = true)]
async fn a_holder_survives_conflicts_errors_and_lost_answers_within_its_deadline() {
    let server = ApiServer::default();
    let mut first = candidate(&server, "first");
    first.leads().await;
    let conflict = Fault::Answer { code: 409, reason: "Conflict".into() };
    let busy = Fault::Answer { code: 429, reason: "TooManyRequests".into() };
    for fault in [conflict, busy, Fault::Unreachable, Fault::AnswerLost, Fault::Hang] {
        first.link.fail_once(fault, |call| call.verb == Verb::Update);
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(matches!(*first.told.borrow(), Leadership::Leading { .. }), "{:?}", first.told.borrow());
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_finds_another_in_the_lease_has_lost() {
    let server = ApiServer::default();
    let mut first = candidate(&server, "first");
    first.leads().await;
    server.change("leases.coordination.k8s.io", NS, NAME, |lease| {
        lease["spec"]["holderIdentity"] = "an older version by hand".into();
    });
    let lost = first.until(|now| matches!(now, Leadership::Lost { .. })).await;
    assert!(matches!(lost, Leadership::Lost { reason } if reason.contains("an older version by hand")));
}

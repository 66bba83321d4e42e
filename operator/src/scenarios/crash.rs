//! An operator that dies at any write, before or after it is done, is followed by one that ends alike.

use super::*;

/// Makes, rolls or shrinks a cluster; `n`: the write at which the first operator dies.
struct Story {
    /// From what is already there.
    begin: fn(&World),
    replicas: usize,
    image: &'static str,
}

const CREATE: Story = Story { begin: |_| {}, replicas: 3, image: "undb:1" };
const ROLL: Story = Story {
    begin: |world| world.change_spec(|spec| spec["image"] = json!("undb:2")),
    replicas: 3,
    image: "undb:2",
};
const SHRINK: Story = Story {
    begin: |world| world.change_spec(|spec| spec["replicas"] = json!(3)),
    replicas: 3,
    image: "undb:1",
};

impl Story {
    /// A world in which the story begins.
    async fn world(&self, stores_before: usize) -> World {
        let mut world = World::new();
        if stores_before > 0 {
            world.change_spec(|spec| spec["replicas"] = json!(stores_before));
            let operator = world.operator();
            world.until("started", |w| w.is_settled(stores_before, "undb:1")).await;
            drop(operator);
        }
        (self.begin)(&world);
        world
    }

    /// What comes of it when nobody dies, and how many writes that takes.
    async fn whole(&self, stores_before: usize) -> (BTreeMap<String, Value>, usize) {
        let mut world = self.world(stores_before).await;
        let operator = world.operator();
        world.until("done", |w| w.is_settled(self.replicas, self.image)).await;
        let is_event = |line: &&String| !line.contains("events");
        (world.objects(), operator.link.writes().iter().filter(is_event).count())
    }

    async fn with_a_death(&self, stores_before: usize, n: usize, done: bool) -> BTreeMap<String, Value> {
        let mut world = self.world(stores_before).await;
        let first = world.operator();
        first.link.die_at_write(n, done);
        world.until("dead", |w| first.link.is_dead() || w.is_settled(self.replicas, self.image)).await;
        drop(first);
        let _second = world.operator();
        world.until("done by the second", |w| w.is_settled(self.replicas, self.image)).await;
        world.objects()
    }

    async fn every_death_ends_alike(&self, stores_before: usize) {
        let (wanted, writes) = self.whole(stores_before).await;
        assert!(writes > 5, "only {writes} writes");
        for (turn, n) in (0..writes.min(WRITES_MAX)).step_by(stride(writes)).enumerate() {
            // Before and after in turn, where not every death is tried.
            let kinds = if is_every_death() { vec![false, true] } else { vec![turn % 2 == 1] };
            for done in kinds {
                let found = self.with_a_death(stores_before, n, done).await;
                let at = format!("death at write {n} of {writes}, done: {done}");
                let names = |objects: &BTreeMap<String, Value>| objects.keys().cloned().collect::<Vec<_>>();
                assert_eq!(names(&found), names(&wanted), "{at}");
                for (name, object) in &wanted {
                    assert_eq!(found.get(name), Some(object), "{at}: {name}");
                }
            }
        }
    }
}

/// Later ones only repeat status writes.
const WRITES_MAX: usize = 120;
/// Deaths a story, unless UNDB_EVERY_DEATH is set: each is a whole life of a cluster.
const DEATHS: usize = 5;

fn stride(writes: usize) -> usize {
    if is_every_death() { 1 } else { (writes.min(WRITES_MAX) / DEATHS).max(1) }
}

fn is_every_death() -> bool {
    std::env::var_os("UNDB_EVERY_DEATH").is_some()
}

#[tokio::test(start_paused = true)]
async fn a_death_at_any_write_of_a_creation_ends_with_the_same_objects() {
    CREATE.every_death_ends_alike(0).await;
}

#[tokio::test(start_paused = true)]
async fn a_death_at_any_write_of_a_roll_ends_with_the_same_objects() {
    ROLL.every_death_ends_alike(3).await;
}

#[tokio::test(start_paused = true)]
async fn a_death_at_any_write_of_a_scale_in_ends_with_the_same_objects() {
    SHRINK.every_death_ends_alike(4).await;
}

//! A whole cluster on a file system that fills up: a small one, mounted from a file.
//!
//! Needs root, mkfs.ext4 and loop devices. Without them it says aloud that it is skipped; where
//! UNDB_REQUIRE_ALL is set (the gate) it fails instead.

mod harness;

use harness::Dev;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const DISK_BYTES: u64 = 768 << 20;
const VALUE_BYTES: usize = 4_000_000;
const PUTS_MAX: usize = 200;
const EXIT_REFUSED: i32 = 6;
const PATIENCE: Duration = Duration::from_secs(60);

/// A mounted file system; unmounted whatever happens.
struct SmallDisk {
    at: PathBuf,
}

impl SmallDisk {
    /// Why not, where this machine cannot.
    fn mount(dir: &Path) -> Result<Self, String> {
        let image = dir.join("disk.img");
        let file = std::fs::File::create(&image).map_err(|e| e.to_string())?;
        file.set_len(DISK_BYTES).map_err(|e| e.to_string())?;
        let at = dir.join("disk");
        std::fs::create_dir(&at).map_err(|e| e.to_string())?;
        let (image, mount_point) = (image.to_string_lossy(), at.to_string_lossy());
        run("mkfs.ext4", &["-q", "-m", "0", &image])?;
        run("mount", &["-o", "loop", &image, &mount_point])?;
        Ok(Self { at })
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a process that a failed test left behind must not keep it.
        let _reported_by_the_next_mount = run("umount", &["-l", &self.at.to_string_lossy()]);
    }
}

fn run(program: &str, args: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(args).output().map_err(|e| format!("{program}: {e}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{program}: {}", said.trim())) }
}

/// The value of a key, unlike that of any other.
fn value(n: usize) -> Vec<u8> {
    let mut state = n as u64 + 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(next).flatten().take(VALUE_BYTES).collect()
}

fn put(dev: &Dev, n: usize) -> i32 {
    dev.run_fed(&["kv", "put", &format!("key-{n}")], &value(n)).code
}

fn is_there(dev: &Dev, n: usize) -> bool {
    dev.run(&["kv", "get", &format!("key-{n}")]).stdout == value(n)
}

#[test]
fn a_full_disk_refuses_writes_in_words_loses_nothing_and_is_over_when_there_is_room() {
    let dir = tempfile::tempdir().expect("temp dir");
    let disk = match SmallDisk::mount(dir.path()) {
        Ok(disk) => disk,
        Err(why) if std::env::var_os("UNDB_REQUIRE_ALL").is_none() => {
            eprintln!("SKIPPED: full disk: {why}; run as root where loop devices can be mounted");
            return;
        }
        Err(why) => panic!("the gate wants this test: {why}"),
    };
    let data = disk.at.join("data");
    let dev = Dev::start(&data);

    let written = (0..PUTS_MAX).find(|n| put(&dev, *n) != 0).expect("the disk fills up");
    assert!(written >= 3, "only {written} values fit");
    let refused = dev.run_fed(&["kv", "put", "one-more"], &value(written));
    assert_eq!(refused.code, EXIT_REFUSED, "{}", refused.stderr);
    assert!(refused.stderr.contains("full") && refused.stderr.contains("remove data"), "{}", refused.stderr);
    assert!((0..written).all(|n| is_there(&dev, n)), "reads go on");
    assert_eq!(dev.run(&["kv", "del", "key-0"]).code, 0, "deletes go on");

    // Killed and started again on the full disk.
    let dev = dev.kill_and_restart(&data);
    assert!((1..written).all(|n| is_there(&dev, n)), "nothing acknowledged is lost");
    assert_eq!(dev.run(&["kv", "get", "key-0"]).code, 1, "what was deleted stays deleted");

    for n in 2..written {
        assert_eq!(dev.run(&["kv", "del", &format!("key-{n}")]).code, 0);
    }
    let since = Instant::now();
    while put(&dev, written) != 0 {
        assert!(since.elapsed() < PATIENCE, "there is room and writes are still refused");
    }
    assert!(is_there(&dev, 1) && is_there(&dev, written));
    dev.stop();
    drop(disk);
}

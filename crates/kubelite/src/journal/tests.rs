//! What a folder remembers, whatever moment the server died at.

use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::store::Store;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn open(folder: &Path) -> Store {
    let (journal, kept) = Journal::open(folder).expect("a good folder");
    Store::resume(100, kept, journal)
}

fn put(store: &mut Store, name: &str, size: u64) {
    store.put("things", Key::new("here", name), json!({"metadata": {"name": name}, "size": size}));
}

fn sizes(store: &Store) -> Vec<(String, u64)> {
    let size = |(key, it): (&Key, &crate::store::Object)| (key.name.clone(), it.value()["size"].as_u64().unwrap());
    store.bucket("things").iter().map(size).collect()
}

#[test]
fn what_was_committed_is_there_after_a_restart_and_revisions_go_on() {
    let folder = folder();
    let mut store = open(folder.path());
    put(&mut store, "a", 1);
    put(&mut store, "b", 1);
    store.commit().expect("room on the disk");
    put(&mut store, "a", 2);
    store.remove("things", &Key::new("here", "b"));
    store.commit().expect("room on the disk");
    let revision = store.revision();
    drop(store);

    let mut store = open(folder.path());
    assert_eq!((store.revision(), sizes(&store)), (revision, vec![("a".into(), 2)]));
    assert!(store.changes_since(revision - 1, 9).is_err(), "history does not outlive the process");
    put(&mut store, "c", 3);
    assert_eq!(store.revision(), revision + 1);
}

#[test]
fn nobody_else_can_read_the_file() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = folder();
    open(folder.path());
    let mode = fs::metadata(folder.path().join("objects.jsonl")).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_folder_serves_one_server_at_a_time() {
    let folder = folder();
    let store = open(folder.path());
    assert!(matches!(Journal::open(folder.path()), Err(DataError::Busy(_))));
    drop(store);
    open(folder.path());
}

/// A server that dies while it writes leaves any part of its last line behind, and nothing of the line counts.
#[test]
fn a_line_cut_short_at_any_byte_is_as_if_it_had_never_been() {
    let folder = folder();
    let path = folder.path().join("objects.jsonl");
    let mut store = open(folder.path());
    put(&mut store, "kept", 1);
    store.commit().expect("room on the disk");
    let (revision, acknowledged) = (store.revision(), fs::read(&path).expect("the file").len());
    put(&mut store, "one", 2);
    put(&mut store, "two", 3);
    store.commit().expect("room on the disk");
    drop(store);
    let whole = fs::read(&path).expect("the file");
    for end in acknowledged..whole.len() {
        fs::write(&path, &whole[..end]).expect("room on the disk");
        let store = open(folder.path());
        assert_eq!((store.revision(), sizes(&store)), (revision, vec![("kept".into(), 1)]), "cut at {end}");
    }
    fs::write(&path, &whole).expect("room on the disk");
    assert_eq!(sizes(&open(folder.path())).len(), 3, "both changes of the request");
}

#[test]
fn damage_in_the_middle_is_told_with_its_line_and_nothing_is_overwritten() {
    let folder = folder();
    let path = folder.path().join("objects.jsonl");
    let text = "{\"kubelite\":1,\"revision\":4}\n{\"revision\":5,\"cha\n{\"revision\":6,\"changes\":[]}\n";
    fs::write(&path, text).expect("room on the disk");
    let error = Journal::open(folder.path()).err().expect("refused").to_string();
    assert!(error.starts_with("line 2 of ") && error.contains("objects.jsonl is damaged"), "{error}");
    assert_eq!(fs::read_to_string(&path).expect("the file"), text);
    fs::write(&path, "{\"kubelite\":2,\"revision\":4}\n").expect("room on the disk");
    let error = Journal::open(folder.path()).err().expect("refused").to_string();
    assert!(error.contains("its form is 2, this server knows 1"), "{error}");
}

#[test]
fn a_file_does_not_grow_with_every_renewal() {
    let folder = folder();
    let path = folder.path().join("objects.jsonl");
    let mut store = open(folder.path());
    let filling = "x".repeat(200_000);
    for size in 0..100 {
        store.put("things", Key::new("here", "a"), json!({"size": size, "filling": filling}));
        store.commit().expect("room on the disk");
    }
    let length = fs::metadata(&path).expect("the file").len();
    assert!(length < ROOM + 1_000_000, "{length} bytes for one object");
    drop(store);
    let store = open(folder.path());
    assert_eq!((store.revision(), sizes(&store)), (101, vec![("a".into(), 99)]));
}

/// A name that cannot be taken stands for a full disk: the file is a folder.
#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let folder = folder();
    fs::create_dir(folder.path().join("objects.new")).expect("room on the disk");
    let error = Journal::open(folder.path()).err().expect("refused").to_string();
    assert!(error.contains("objects.jsonl") && error.starts_with("cannot use "), "{error}");
}

/// A full disk takes the first half of a line; there is room again for the next one.
#[test]
fn half_a_line_that_a_full_disk_left_does_not_spoil_the_next() {
    let folder = folder();
    let (mut journal, _) = Journal::open(folder.path()).expect("a good folder");
    journal.append(b"{\"revision\":2,\"changes\":[]}\n").expect("room on the disk");
    journal.file.write_all(b"{\"revision\":3,\"chan").expect("room on the disk");
    journal.torn = true;
    journal.append(b"{\"revision\":4,\"changes\":[]}\n").expect("room on the disk");
    drop(journal);
    let (_, kept) = Journal::open(folder.path()).expect("a good folder");
    assert_eq!(kept.revision, 4);
}

/// Only root can read a folder that nobody may read; for all others the folder cannot be synchronised here.
#[test]
fn a_file_that_has_its_name_is_in_use_even_if_its_folder_cannot_be_read() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = folder();
    let path = folder.path().join("objects.jsonl");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o300)).expect("our own folder");
    let mut file = write_anew(&path, 7, std::iter::empty()).expect("the new file");
    file.write_all(b"{\"revision\":8,\"changes\":[]}\n").expect("room on the disk");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).expect("our own folder");
    assert_eq!(parse(&path, &fs::read(&path).expect("the file")).expect("whole").revision, 8);
}

//! Users of this machine, from /etc/passwd and /etc/group.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{reading::Reason, root::Root};

/// A user and its primary group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
}

/// A user's entry in /etc/passwd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    pub name: String,
    pub user: User,
    pub home: PathBuf,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

impl Account {
    /// The user of this name; `None` if it is not in /etc/passwd.
    pub fn named(root: &Root, name: &str) -> Option<Account> {
        Account::find(root, |found, _| found == name)
    }

    /// The first user with this number; `None` if there is none in /etc/passwd.
    pub fn of_uid(root: &Root, uid: u32) -> Option<Account> {
        Account::find(root, |_, found| found == uid)
    }

    fn find(root: &Root, is_wanted: impl Fn(&str, u32) -> bool) -> Option<Account> {
        let users = root.read("etc/passwd").ok()?;
        let (name, user, home) = users.lines().find_map(|line| {
            let [name, _, uid, gid, _, home, ..] = line.split(':').collect::<Vec<_>>()[..] else {
                return None;
            };
            let user = User { uid: uid.parse().ok()?, gid: gid.parse().ok()? };
            is_wanted(name, user.uid).then(|| (name.to_owned(), user, PathBuf::from(home)))
        })?;
        let groups = root.read("etc/group").unwrap_or_default();
        let groups = groups.lines().filter_map(|line| {
            let [_, _, gid, members] = line.split(':').collect::<Vec<_>>()[..] else { return None };
            gid.parse().ok().filter(|_| members.split(',').any(|member| member == name))
        });
        let groups = groups.collect();
        Some(Account { name, user, home, groups })
    }
}

/// The user of process `pid`. Fails if it has several identities, as a set-user-ID program has: its command line and its
/// variables are those of another user.
pub fn of_process(root: &Root, pid: u32) -> Result<u32, Reason> {
    let status = root.read(format!("proc/{pid}/status"))?;
    // Real, effective, saved, file system.
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    let uids: Vec<u32> = uids.split_whitespace().filter_map(|uid| uid.parse().ok()).collect();
    match uids[..] {
        [uid, effective, saved, files] if [effective, saved, files] == [uid; 3] => Ok(uid),
        [real, effective, ..] => Reason::err(format!(
            "process {pid} was started by uid {real} and runs with the rights of uid {effective}"
        )),
        _ => Reason::err(format!("the user of process {pid} is unknown")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tree;

    #[test]
    fn a_process_with_several_identities_has_no_user() {
        for (uids, uid) in [
            ("Uid:\t7\t7\t7\t7\n", Some(7)),
            ("Uid:\t7\t0\t0\t0\n", None),
            ("Uid:\t0\t0\t7\t0\n", None),
            ("Uid:\t0\t0\t0\t7\n", None),
            ("", None),
        ] {
            let (_dir, root) = tree(&[("proc/9/status", &format!("Name:\tx\n{uids}Gid:\t1\n"))]);
            assert_eq!(of_process(&root, 9).ok(), uid, "{uids}");
        }
    }

    #[test]
    fn a_user_has_the_groups_that_list_it() {
        let users = "root:x:0:0:root:/root:/bin/bash\nbroken\npostgres:x:101:104:,,,:/var/lib/p:/bin/sh\n\
                     toor:x:0:0::/:\n";
        let groups = "ssl-cert:x:105:postgres\nadm:x:4:syslog,postgres\npost:x:9:postgre\nbroken\n";
        let (_dir, root) = tree(&[("etc/passwd", users), ("etc/group", groups)]);
        let postgres = Account {
            name: "postgres".to_owned(),
            user: User { uid: 101, gid: 104 },
            home: PathBuf::from("/var/lib/p"),
            groups: vec![105, 4],
        };
        assert_eq!(Account::named(&root, "postgres"), Some(postgres.clone()));
        assert_eq!(Account::of_uid(&root, 101), Some(postgres));
        assert_eq!(Account::of_uid(&root, 0).map(|found| found.name), Some("root".to_owned()));
        assert_eq!(Account::of_uid(&root, 104), None);
        assert_eq!(Account::named(&root, "broken"), None);
    }
}

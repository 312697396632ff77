//! The TCP ports of servers, and their places in commands.

use std::{
    io,
    net::{Ipv4Addr, TcpListener},
};

use super::PORT;

/// The ports that were chosen for a run, as one of its servers names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The port of the server itself: [`PORT`].
    pub own: u16,
    /// The ports of all servers by name: [`port_of`].
    named: Vec<(String, u16)>,
}

impl Ports {
    /// A free port for each server.
    pub(crate) fn choose(servers: &[&str]) -> io::Result<Vec<Ports>> {
        let listen = |_: &&str| TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        // All at once, so that they differ.
        let listeners = servers.iter().map(listen).collect::<io::Result<Vec<_>>>()?;
        let port = |listener: &TcpListener| Ok(listener.local_addr()?.port());
        let ports = listeners.iter().map(port).collect::<io::Result<Vec<u16>>>()?;
        let named: Vec<(String, u16)> =
            servers.iter().map(|name| (*name).to_owned()).zip(ports.iter().copied()).collect();
        Ok(ports.into_iter().map(|own| Ports { own, named: named.clone() }).collect())
    }

    /// The text with the ports in place of [`PORT`] and [`port_of`].
    pub(crate) fn in_text(&self, text: &str) -> String {
        let text = text.replace(PORT, &self.own.to_string());
        let put =
            |text: String, (name, port): &(String, u16)| text.replace(&port_of(name), &port.to_string());
        self.named.iter().fold(text, put)
    }

    /// The words with the ports.
    pub(crate) fn in_words(&self, words: &[String]) -> Vec<String> {
        words.iter().map(|word| self.in_text(word)).collect()
    }
}

/// In commands: the port of a server with a name.
pub fn port_of(server: &str) -> String {
    format!("{{port:{server}}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_has_a_port_of_its_own() -> io::Result<()> {
        let ports = Ports::choose(&["app", "db"])?;
        let [app, db] = &ports[..] else { return Err(io::Error::other("two were expected")) };
        assert_ne!(app.own, db.own);
        let text = "-p {port} -d {port:db} -a {port:app}{other}";
        assert_eq!(app.in_text(text), format!("-p {0} -d {1} -a {0}{{other}}", app.own, db.own));
        assert_eq!(db.in_text(text), format!("-p {1} -d {1} -a {0}{{other}}", app.own, db.own));
        Ok(())
    }
}

//! The tree of a configuration over real servers.

use routeconf::{MemorySources, Params, Variables, load};
use routes::{Plan, Tree, TreeFlags};
use testkit::Server;
use upstream::{Command, Outcome};

use super::{Rig, patient};

/// Several memcacheds. The tree of a configuration is one worker, and the direct path to each
/// server is another.
pub struct Cluster {
    pub rig: Rig,
    pub direct: Vec<Rig>,
    _servers: Vec<Server>,
}

/// Pools `A`, `B`, ... of one server each, `all` of all, and `dead` without a server.
pub fn config(servers: &[Server], route: &str) -> String {
    // No system gives port 1 to a program that takes any free port.
    let nobody = "127.0.0.1:1";
    let pool = |name: &str, servers: &[String]| {
        format!(r#""{name}": {{ "servers": [{}] }}"#, servers.join(","))
    };
    let addresses: Vec<_> = servers.iter().map(|one| format!(r#""{}""#, one.addr())).collect();
    let mut pools = vec![pool("all", &addresses), pool("dead", &[format!(r#""{nobody}""#)])];
    let single = addresses.iter().zip('A'..);
    pools.extend(single.map(|(one, name)| pool(&name.to_string(), std::slice::from_ref(one))));
    format!(r#"{{ "pools": {{ {} }}, "route": {route} }}"#, pools.join(","))
}

pub fn plan(text: &str) -> Result<Plan, Vec<String>> {
    plan_with(text, TreeFlags::default())
}

pub fn plan_with(text: &str, flags: TreeFlags) -> Result<Plan, Vec<String>> {
    let mut nothing = MemorySources(std::iter::empty().collect());
    let loaded = match load("test.json", text, &Params::default(), &mut nothing) {
        Ok(loaded) => loaded,
        Err(rejected) => panic!("{}", rejected.render()),
    };
    Plan::new(loaded.config, patient(), flags)
}

impl Cluster {
    #[track_caller]
    pub fn new(count: usize, route: &str) -> Self {
        let servers: Vec<_> = (0..count).map(|_| Server::memcached(&[])).collect();
        let text = config(&servers, route);
        Self::with(servers, &text, "{}")
    }

    /// These servers under this configuration, with these runtime variables.
    #[track_caller]
    pub fn with(servers: Vec<Server>, text: &str, variables: &str) -> Self {
        let mut plan = plan(text).unwrap();
        plan.set_variables(Variables::parse("vars", variables).unwrap()).unwrap();
        let rig = Rig::over(|upstream| -> Tree { plan.tree(upstream) });
        let direct = servers.iter().map(|server| {
            let address = server.addr();
            Rig::new(patient(), move |upstream| upstream.at(address))
        });
        Self { rig, direct: direct.collect(), _servers: servers }
    }

    #[track_caller]
    pub fn set(&mut self, key: &str, value: &str) {
        assert_eq!(self.rig.store(Command::Set, key, value), Outcome::Stored);
    }

    #[track_caller]
    pub fn has(&mut self, key: &str, value: Option<&str>) {
        assert_eq!(self.rig.get(key), Ok(value.map(str::to_owned)), "{key}");
    }

    /// The value that server `index` has.
    #[track_caller]
    pub fn on(&mut self, index: usize, key: &str) -> Option<String> {
        self.direct[index].get(key).unwrap()
    }

    /// Waits for the work behind the reply.
    #[track_caller]
    pub fn comes_to(&mut self, index: usize, key: &str, value: &str) {
        let Self { rig, direct, .. } = self;
        rig.eventually(key, |rig| {
            rig.turn();
            direct[index].get(key) == Ok(Some(value.to_owned()))
        });
    }

    /// The one server that has the key.
    #[track_caller]
    pub fn place(&mut self, key: &str) -> usize {
        let places: Vec<_> =
            (0..self.direct.len()).filter(|index| self.on(*index, key).is_some()).collect();
        assert_eq!(places.len(), 1, "{key} is at {places:?}");
        places[0]
    }
}

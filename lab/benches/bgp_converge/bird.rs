//! BIRD in the place of our speaker.

use std::fmt::Write as _;
use std::net::IpAddr;

/// A BIRD on a node that advertises what is on `kube-lb0` to one router, as `docs/how-to/other-routers.md` has it.
pub fn reads_kube_lb0(router: IpAddr, node_as: u32, router_as: u32) -> String {
    format!(
        "router id from \"eth0\";
protocol device {{ }}
protocol direct kube_lb {{ ipv4; interface \"kube-lb0\"; }}
protocol bgp {{
  local as {node_as};
  neighbor {router} as {router_as};
  connect delay time 1;
  ipv4 {{ import none; export where proto = \"kube_lb\"; }};
}}
"
    )
}

/// A BIRD with these host routes in a protocol `many` that is switched off.
pub fn has_routes(router: IpAddr, node_as: u32, router_as: u32, routes: &[std::net::Ipv4Addr]) -> String {
    let mut text = format!(
        "router id from \"eth0\";
protocol device {{ }}
protocol bgp {{
  local as {node_as};
  neighbor {router} as {router_as};
  connect delay time 1;
  ipv4 {{ import none; export all; next hop self; }};
}}
protocol static many {{
  disabled;
  ipv4;
"
    );
    for route in routes {
        writeln!(text, "  route {route}/32 blackhole;").expect("a string takes all");
    }
    text + "}\n"
}

/// A router that is reached at one of many addresses of its machine. It has one session: BIRD does not take two with the
/// same neighbour.
pub fn has_a_face(face: IpAddr, node: IpAddr, node_as: u32, router_as: u32) -> String {
    format!(
        "router id {face};
protocol device {{ }}
protocol bgp {{
  local {face} as {router_as};
  neighbor {node} as {node_as};
  strict bind yes;
  passive yes;
  direct;
  ipv4 {{ import all; export none; }};
}}
"
    )
}

//! The numbers of rtnetlink, under the names of the kernel's headers.

// linux/netlink.h
pub(super) const NLMSG_ERROR: u16 = 2;
pub(super) const NLMSG_DONE: u16 = 3;
pub(super) const NLM_F_REQUEST: u16 = 0x1;
pub(super) const NLM_F_ACK: u16 = 0x4;
pub(super) const NLM_F_DUMP_INTR: u16 = 0x10;
pub(in crate::agent) const NLM_F_DUMP: u16 = 0x300;
pub(super) const NLM_F_REPLACE: u16 = 0x100;
pub(super) const NLM_F_EXCL: u16 = 0x200;
pub(super) const NLM_F_CREATE: u16 = 0x400;
pub(super) const NLM_F_CAPPED: u16 = 0x100;
pub(super) const NLMSGERR_ATTR_MSG: u16 = 1;
pub(super) const NLA_F_NESTED: u16 = 0x8000;
pub(super) const NLA_TYPE_MASK: u16 = 0x3fff;

// linux/rtnetlink.h
pub(super) const RTM_NEWLINK: u16 = 16;
pub(super) const RTM_DELLINK: u16 = 17;
pub(in crate::agent) const RTM_GETLINK: u16 = 18;
pub(super) const RTM_NEWADDR: u16 = 20;
pub(super) const RTM_DELADDR: u16 = 21;
pub(super) const RTM_GETADDR: u16 = 22;
pub(super) const RTM_NEWROUTE: u16 = 24;
pub(super) const RTM_DELROUTE: u16 = 25;
pub(super) const RTM_GETROUTE: u16 = 26;
pub(super) const RTM_NEWNEXTHOP: u16 = 104;
pub(super) const RTM_DELNEXTHOP: u16 = 105;
pub(super) const RTM_GETNEXTHOP: u16 = 106;
pub(super) const RTNLGRP_LINK: u32 = 1;
pub(super) const RTNLGRP_IPV4_IFADDR: u32 = 5;
pub(super) const RTNLGRP_IPV4_ROUTE: u32 = 7;
pub(super) const RTNLGRP_IPV6_IFADDR: u32 = 9;
pub(super) const RTNLGRP_IPV6_ROUTE: u32 = 11;
pub(super) const RTNLGRP_NEXTHOP: u32 = 32;
pub(super) const RT_TABLE_MAIN: u8 = 254;
pub(super) const RTN_UNICAST: u8 = 1;
pub(super) const RTM_F_CLONED: u32 = 0x200;
pub(super) const RTA_OIF: u16 = 4;
pub(super) const RTA_GATEWAY: u16 = 5;
pub(super) const RTA_PRIORITY: u16 = 6;
pub(super) const RTA_MULTIPATH: u16 = 9;
pub(super) const RTA_TABLE: u16 = 15;
pub(super) const RTA_VIA: u16 = 18;
pub(super) const RTA_NH_ID: u16 = 30;

// linux/nexthop.h
pub(super) const NHA_ID: u16 = 1;
pub(super) const NHA_GROUP: u16 = 2;
pub(super) const NHA_OIF: u16 = 5;
pub(super) const NHA_GATEWAY: u16 = 6;

// linux/if.h, linux/if_arp.h, linux/if_link.h, linux/ip.h
pub(super) const IFF_UP: u32 = 0x1;
pub(super) const IFF_LOOPBACK: u32 = 0x8;
pub(super) const IFF_LOWER_UP: u32 = 0x1_0000;
pub(super) const IFLA_ADDRESS: u16 = 1;
pub(in crate::agent) const IFLA_IFNAME: u16 = 3;
pub(super) const IFLA_LINKINFO: u16 = 18;
pub(super) const IFLA_AF_SPEC: u16 = 26;
pub(super) const IFLA_EXT_MASK: u16 = 29;
pub(super) const RTEXT_FILTER_SKIP_STATS: u32 = 8;
pub(super) const IFLA_INFO_KIND: u16 = 1;
pub(super) const IFLA_INET_CONF: u16 = 1;
pub(super) const IPV4_DEVCONF_PROMOTE_SECONDARIES: u16 = 20;

// linux/if_addr.h
pub(super) const IFA_ADDRESS: u16 = 1;
pub(super) const IFA_LOCAL: u16 = 2;
pub(super) const IFA_BROADCAST: u16 = 4;
pub(super) const IFA_CACHEINFO: u16 = 6;
pub(super) const IFA_FLAGS: u16 = 8;
pub(super) const IFA_PROTO: u16 = 11;
pub(super) const IFA_F_NODAD: u32 = 0x02;
pub(super) const IFA_F_DADFAILED: u32 = 0x08;
pub(super) const IFA_F_DEPRECATED: u32 = 0x20;
pub(super) const IFA_F_TENTATIVE: u32 = 0x40;
pub(super) const IFA_F_NOPREFIXROUTE: u32 = 0x200;

// sys/socket.h
pub(super) const AF_UNSPEC: u8 = 0;
pub(in crate::agent) const AF_INET: u8 = 2;
pub(in crate::agent) const AF_INET6: u8 = 10;

/// A lifetime that never ends.
pub(super) const INFINITY: u32 = u32::MAX;

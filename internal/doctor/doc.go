// Package doctor finds out what this host and this process can do for Penstock, by doing it:
// missing features, their cost, and their remedy. Versions are never asked for. Files of the
// kernel have limits and reasons; the rest is left open.
//
// [Examine] runs on Linux only. Its [Report] is for people (WriteText) or a JSON
// object, whose names stay as they are:
//
//	{"checks": [{"name", "state", "found", "cost", "mend": [], "figures": {}}], "place", "able"}
//
// A state is ok, degraded (it works, less well), missing (it does not), unknown (it could not
// be found out) or unused (it does not work, and this release does not use it). Any one of
// mend is enough, unless it says otherwise; it is the remedy for this place: a unit of
// systemd, a container and its engine, a machine. Figures that are not known are left out.
// They are, by check:
//
//	loopback         ipv4, ipv6, interfaces_up: any, the loopback one included
//	descriptors      soft, hard, nr_open, raisable: hard by this process, free: had, of 64,
//	                 sessions: that soft allows
//	splice           moved_bytes
//	pipe-size        pipe_max_size, largest_bytes: had
//	pipe-quota       pipe_user_pages_soft, pipe_user_pages_hard, whole_pipes: of 1 MiB, had
//	                 at once, of 80; end: the end of the next one ("none": not tried, "degraded",
//	                 "refused", "no files", "no descriptors", "other"), degraded_bytes,
//	                 budget_pages: that Penstock makes of the quota, most_pipes: by the
//	                 descriptors, page_bytes, resizable
//	backlog          somaxconn, listener_backlog: that Penstock gets, largest_backlog
//	syn-backlog      tcp_max_syn_backlog, tcp_syncookies
//	ports            lowest, highest, reserved: between them, usable, new_per_second_and_target,
//	                 tcp_tw_reuse, tcp_timestamps, bind_address_no_port, sessions: that the descriptors allow
//	tcp-buffers      tcp_rmem_max, tcp_wmem_max
//	rcvlowat, user-timeout, reuseport
//	                 works
//	zerocopy         works, copied_on_loopback
//	cpus             allowed, gomaxprocs, cgroup_quota_us, cgroup_period_us
//	memory           total_bytes, cgroup_limit_bytes, sessions, pipe_bytes: if all are full
//	numa             nodes, distance_of_node0: to each node, 10 is local
//	clock            source, available, read_ns
//	membarrier       works, needed: on this architecture
//	huge-pages       nr_hugepages, free_hugepages: of 2 MiB; transparent_hugepage: the setting,
//	                 thp_enabled: 0 if this process gets none of them; map_hugetlb, madv_hugepage: had
//	arena            pages: the kind, bytes, huge_bytes: of these, bound: to a NUMA node; for one loop
//	executable-memory
//	                 works: written memory may be made executable
//	io_uring         works, io_uring_disabled
//	bpf              maps, sockmap, unprivileged_bpf_disabled, cap_bpf: or CAP_SYS_ADMIN
//	trace            lacks: capabilities of penstock trace, types: the kernel's type information
//	capabilities     effective: in hexadecimal, has, lacks, ip_unprivileged_port_start, uid,
//	                 nested_user_namespace
//	seccomp          mode: 0 none, 2 a filter, filters, no_new_privs, refused: calls,
//	                 unused: those that this release does not make
package doctor

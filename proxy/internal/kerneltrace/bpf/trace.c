/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* Programs for tracepoints with BTF. They count events of the sockets and threads of the
 * traced processes in maps of a fixed size; user space reads the maps at the end. A program
 * returns as soon as it knows that an event belongs to no traced socket or thread. */
#include "kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set before loading. */
const volatile u32 only_tgid;  /* the traced process; 0: the processes in the map processes */
const volatile u32 by_cgroup;  /* the cgroup decides which sockets and threads are traced */
const volatile u32 namespace;  /* unmatched events count only in this one; 0: in all */
const volatile u64 jiffy_ns;   /* 0: unknown */
const volatile u32 purged;     /* reasons of enum skb_drop_reason; 0: unknown */
const volatile u32 no_socket;

enum event {
	RETRANSMIT = 1,
	RETRANSMIT_SYNACK,
	RESET_SENT,
	RESET_RECEIVED,
	CONNECT_FAILED,
	DROP,
	BUFFER_LIMIT,
	DEVICE_STALL,
	EVENTS,
};

enum duration { CONNECT = 1, RETRANSMIT_WAIT, DEVICE_QUEUE };
enum direction { UNDIRECTED, INCOMING, OUTGOING };
enum owned { ACCEPTED = 1, CONNECTED };
enum tcp_state { ESTABLISHED = 1, SYN_SENT = 2, SYN_RECV = 3, TIME_WAIT = 6, CLOSE = 7 };
enum ca_state { CA_OPEN, CA_LOSS = 4 };

/* An IPv4 address is mapped into IPv6. */
struct address {
	u32 word[4];
};

struct flow {
	struct address local, remote;
	u16 local_port, remote_port; /* host byte order */
	u32 netns;
};

/* A place is a listener's address or an endpoint's. */
struct place {
	struct address address;
	u32 port;
	u32 netns;
};

struct event_key {
	struct flow flow;
	u16 event, direction;
	u32 detail; /* reason, state or kind */
};

struct tally {
	u64 count, first, last; /* ktime in ns */
};

/* Bucket i begins at (4 + i%4) << (i/4 + 5) ns: a quarter of a power of two each. */
#define BUCKETS 128

struct histogram {
	u64 count, sum, max; /* ns */
	u32 bucket[BUCKETS];
};

struct duration_key {
	struct place place;
	u32 duration, side, device;
};

struct thread {
	u64 since; /* waits for a CPU since then; 0: it does not wait */
	u32 tgid, unused;
	struct histogram wait;
};

struct ownership {
	u64 side;
};

#define MAP(name, kind, n, k, v)                                                                   \
	struct {                                                                                   \
		__uint(type, kind);                                                                \
		__uint(max_entries, n);                                                            \
		__type(key, k);                                                                    \
		__type(value, v);                                                                  \
	} name SEC(".maps")

MAP(processes, MAP_HASH, 4096, u32, u32);
MAP(cgroups, MAP_HASH, 1024, u64, u32);
MAP(listening, MAP_HASH, 4096, struct place, u32);
MAP(owners, MAP_LRU_HASH, 65536, struct flow, struct ownership);
MAP(connecting, MAP_LRU_HASH, 16384, u64, u64); /* struct sock -> begin */
MAP(events, MAP_HASH, 16384, struct event_key, struct tally);
MAP(durations, MAP_HASH, 512, struct duration_key, struct histogram);
MAP(threads, MAP_HASH, 4096, u32, struct thread);
MAP(queued, MAP_LRU_HASH, 8192, u64, u64); /* struct sk_buff -> begin */
MAP(unmatched, MAP_ARRAY, EVENTS, u32, u64);
MAP(lost, MAP_ARRAY, 3, u32, u64); /* no room in events, durations, threads */

enum { LOST_EVENT, LOST_DURATION, LOST_THREAD };

/* Initial values of map entries, larger than the stack. */
static const struct histogram no_histogram;
static const struct thread no_thread;

static inline_always void add(void *map, u32 index)
{
	u64 *n = bpf_map_lookup_elem(map, &index);
	if (n)
		__sync_fetch_and_add(n, 1);
}

static inline_always u32 log2(u64 v)
{
	u32 r = 0;
	if (v >> 32) { v >>= 32; r = 32; }
	if (v >> 16) { v >>= 16; r += 16; }
	if (v >> 8) { v >>= 8; r += 8; }
	if (v >> 4) { v >>= 4; r += 4; }
	if (v >> 2) { v >>= 2; r += 2; }
	return r + (v >> 1);
}

static inline_always void record(struct histogram *h, u64 ns)
{
	u32 i = 0;
	if (ns >= 128) {
		u32 power = log2(ns);
		i = ((power - 7) << 2) + ((ns >> (power - 2)) & 3);
	}
	if (i >= BUCKETS)
		i = BUCKETS - 1;
	__sync_fetch_and_add(&h->bucket[i], 1);
	__sync_fetch_and_add(&h->count, 1);
	__sync_fetch_and_add(&h->sum, ns);
	if (ns > h->max)
		h->max = ns;
}

static inline_always void mapped(struct address *a, u32 v4)
{
	a->word[0] = a->word[1] = 0;
	a->word[2] = __builtin_bswap32(0xffff);
	a->word[3] = v4;
}

static inline_always u32 netns_of(struct sock_common *c)
{
	struct net *net = c->skc_net.net;
	return net ? net->ns.inum : 0;
}

/* closed_port returns the local port of a socket that sends a reset when it is closed. Such
 * a socket has lost its number (tcp_disconnect), but has kept the port. */
static inline_always u16 closed_port(struct sock_common *c)
{
	u16 port = 0;
	bpf_probe_read_kernel(&port, sizeof(port), &((struct inet_sock *)c)->inet_sport);
	return __builtin_bswap16(port);
}

/* flow_of fills in the addresses of a socket, full or a request. It reports false if
 * the socket does not use TCP/IP. */
static inline_always bool flow_of(struct sock_common *c, struct flow *f)
{
	if (c->skc_family == FAMILY_INET) {
		mapped(&f->local, c->skc_rcv_saddr);
		mapped(&f->remote, c->skc_daddr);
	} else if (c->skc_family == FAMILY_INET6 && field_exists(c->skc_v6_daddr)) {
		f->local.word[0] = c->skc_v6_rcv_saddr.in6_u.u6_addr32[0];
		f->local.word[1] = c->skc_v6_rcv_saddr.in6_u.u6_addr32[1];
		f->local.word[2] = c->skc_v6_rcv_saddr.in6_u.u6_addr32[2];
		f->local.word[3] = c->skc_v6_rcv_saddr.in6_u.u6_addr32[3];
		f->remote.word[0] = c->skc_v6_daddr.in6_u.u6_addr32[0];
		f->remote.word[1] = c->skc_v6_daddr.in6_u.u6_addr32[1];
		f->remote.word[2] = c->skc_v6_daddr.in6_u.u6_addr32[2];
		f->remote.word[3] = c->skc_v6_daddr.in6_u.u6_addr32[3];
	} else {
		return false;
	}
	f->local_port = c->skc_num ?: closed_port(c);
	f->remote_port = __builtin_bswap16(c->skc_dport);
	f->netns = netns_of(c);
	return true;
}

static inline_always bool listens(const struct flow *f)
{
	struct place p = {.address = f->local, .port = f->local_port, .netns = f->netns};
	if (bpf_map_lookup_elem(&listening, &p))
		return true;
	p.address.word[3] = 0; /* 0.0.0.0, mapped */
	if (f->local.word[0] | f->local.word[1] | (f->local.word[2] ^ __builtin_bswap32(0xffff)))
		p.address.word[0] = p.address.word[1] = p.address.word[2] = 0;
	return bpf_map_lookup_elem(&listening, &p) != NULL;
}

static inline_always bool cgroup_matches(struct cgroup *c)
{
	struct kernfs_node *kn = c ? c->kn : NULL;
	u64 id = kn ? kn->id : 0;
	return id && bpf_map_lookup_elem(&cgroups, &id);
}

static inline_always bool process_matches(u32 tgid)
{
	if (only_tgid)
		return tgid == only_tgid;
	return bpf_map_lookup_elem(&processes, &tgid) != NULL;
}

static inline_always bool task_matches(struct task_struct *t)
{
	if (!by_cgroup)
		return process_matches(t->tgid);
	struct css_set *set = t->cgroups;
	return set && cgroup_matches(set->dfl_cgrp);
}

/* side_of returns the side of a flow of a traced process, and 0 for others. */
static inline_always u32 side_of(const struct flow *f)
{
	struct ownership *o = bpf_map_lookup_elem(&owners, f);
	if (o)
		return o->side;
	return listens(f) ? ACCEPTED : 0;
}

static inline_always void own(const struct flow *f, u32 side)
{
	struct ownership o = {side};
	bpf_map_update_elem(&owners, f, &o, UPDATE_ANY);
}

/* side_of_socket is side_of for a socket, which a process may be connecting. */
static inline_always u32 side_of_socket(struct sock *sk, const struct flow *f)
{
	u64 key = (u64)sk;
	if (bpf_map_lookup_elem(&connecting, &key))
		return CONNECTED;
	u32 side = side_of(f);
	if (side || !by_cgroup)
		return side;
	return cgroup_matches(sk->sk_cgrp_data.cgroup) ? CONNECTED : 0;
}

static inline_always bool in_namespace(u32 netns) { return !namespace || netns == namespace; }

static inline_always void count(const struct flow *f, u32 event, u32 direction, u32 detail)
{
	struct event_key k = {.flow = *f, .event = event, .direction = direction, .detail = detail};
	u64 now = bpf_ktime_get_ns();
	struct tally *t = bpf_map_lookup_elem(&events, &k);
	if (!t) {
		struct tally fresh = {0, now, now};
		bpf_map_update_elem(&events, &k, &fresh, UPDATE_NOEXIST);
		t = bpf_map_lookup_elem(&events, &k);
	}
	if (!t) {
		add(&lost, LOST_EVENT);
		return;
	}
	__sync_fetch_and_add(&t->count, 1);
	t->last = now;
}

static inline_always void last(const struct flow *f, u32 side, u32 duration, u32 device, u64 ns)
{
	struct duration_key k = {.duration = duration, .side = side, .device = device};
	k.place.netns = f->netns;
	if (side == ACCEPTED) {
		k.place.address = f->local;
		k.place.port = f->local_port;
	} else {
		k.place.address = f->remote;
		k.place.port = f->remote_port;
	}
	struct histogram *h = bpf_map_lookup_elem(&durations, &k);
	if (!h) {
		bpf_map_update_elem(&durations, &k, &no_histogram, UPDATE_NOEXIST);
		h = bpf_map_lookup_elem(&durations, &k);
	}
	if (h)
		record(h, ns);
	else
		add(&lost, LOST_DURATION);
}

static inline_always void note(const struct flow *f, u32 side, u32 event, u32 direction, u32 detail)
{
	if (side)
		count(f, event, direction, detail);
	else if (in_namespace(f->netns))
		add(&unmatched, event);
}

/* Sockets. */

#define read_field(to, from) bpf_probe_read_kernel(&(to), sizeof(to), &(from))

/* congestion_state reads a bit field: the builtins are its offset and the shifts. */
static inline_always u32 congestion_state(struct sock *sk)
{
	struct inet_connection_sock *i = (void *)sk;
	u32 offset = __builtin_preserve_field_info(i->icsk_ca_state, 0);
	u32 size = __builtin_preserve_field_info(i->icsk_ca_state, 1);
	u64 v = 0;
	bpf_probe_read_kernel(&v, size > 8 ? 8 : size, (void *)sk + offset);
	v <<= __builtin_preserve_field_info(i->icsk_ca_state, 4);
	return v >> __builtin_preserve_field_info(i->icsk_ca_state, 5);
}

/* retransmit_wait is about how long the peer's receipt was delayed: the timeout that has
 * expired, two round trips for a probe, one for the rest. Only the first retransmission of
 * an episode counts, before which retrans_out is 0 (net/ipv4/tcp_output.c). */
static inline_always u64 retransmit_wait(struct sock *sk, u32 state)
{
	struct inet_connection_sock *i = (void *)sk;
	struct tcp_sock *t = (void *)sk;
	u32 out = 1, rto = 0, srtt = 0; /* srtt in eighths of a microsecond */
	read_field(out, t->retrans_out);
	if (out)
		return 0;
	if (state == CA_LOSS) {
		read_field(rto, i->icsk_rto);
		return rto * jiffy_ns;
	}
	read_field(srtt, t->srtt_us);
	return (u64)srtt * (state == CA_OPEN ? 250 : 125);
}

SEC("tp_btf/tcp_retransmit_skb")
int penstock_retransmit(u64 *ctx)
{
	struct sock *sk = (void *)ctx[0];
	struct flow f = {};
	if (!sk || !flow_of(&sk->__sk_common, &f))
		return 0;
	u32 side = side_of_socket(sk, &f), state = congestion_state(sk);
	note(&f, side, RETRANSMIT, OUTGOING, state);
	u64 wait = side ? retransmit_wait(sk, state) : 0;
	if (wait)
		last(&f, side, RETRANSMIT_WAIT, 0, wait);
	return 0;
}

SEC("tp_btf/tcp_retransmit_synack")
int penstock_synack(u64 *ctx)
{
	struct request_sock *req = (void *)ctx[1];
	struct flow f = {};
	if (!req || !flow_of(&req->__req_common, &f))
		return 0;
	note(&f, side_of(&f), RETRANSMIT_SYNACK, OUTGOING, 0);
	return 0;
}

SEC("tp_btf/tcp_receive_reset")
int penstock_reset_received(u64 *ctx)
{
	struct sock *sk = (void *)ctx[0];
	struct flow f = {};
	if (!sk || !flow_of(&sk->__sk_common, &f))
		return 0;
	note(&f, side_of_socket(sk, &f), RESET_RECEIVED, INCOMING, 0);
	return 0;
}

SEC("tp_btf/sock_exceed_buf_limit")
int penstock_buffer_limit(u64 *ctx)
{
	struct sock *sk = (void *)ctx[0];
	struct flow f = {};
	if (!sk || sk->sk_protocol != PROTO_TCP || !flow_of(&sk->__sk_common, &f))
		return 0;
	note(&f, side_of_socket(sk, &f), BUFFER_LIMIT, UNDIRECTED, ctx[3]);
	return 0;
}

SEC("tp_btf/dql_stall_detected")
int penstock_device_stall(u64 *ctx)
{
	struct flow none = {};
	count(&none, DEVICE_STALL, OUTGOING, 0);
	return 0;
}

/* connect_begins: the local port is not chosen yet (tcp_v4_connect), so the socket is noted. */
static inline_always void connect_begins(struct sock *sk)
{
	u64 key = (u64)sk, now = bpf_ktime_get_ns();
	bool ours = by_cgroup ? cgroup_matches(sk->sk_cgrp_data.cgroup)
			      : process_matches(bpf_get_current_pid_tgid() >> 32);
	if (ours)
		bpf_map_update_elem(&connecting, &key, &now, UPDATE_ANY);
}

static inline_always void connect_ends(struct sock *sk, const struct flow *f, u32 state)
{
	u64 key = (u64)sk;
	u64 *begin = bpf_map_lookup_elem(&connecting, &key);
	if (!begin) {
		bpf_map_delete_elem(&owners, f); /* of an earlier connection */
		return;
	}
	u64 took = bpf_ktime_get_ns() - *begin;
	bpf_map_delete_elem(&connecting, &key);
	own(f, CONNECTED);
	if (state == ESTABLISHED)
		last(f, CONNECTED, CONNECT, 0, took);
	else
		count(f, CONNECT_FAILED, UNDIRECTED, 0);
}

static inline_always void accepted(struct sock *sk, const struct flow *f)
{
	bool ours = by_cgroup ? cgroup_matches(sk->sk_cgrp_data.cgroup) : listens(f);
	if (ours)
		own(f, ACCEPTED);
	else
		bpf_map_delete_elem(&owners, f);
}

SEC("tp_btf/inet_sock_set_state")
int penstock_state(u64 *ctx)
{
	struct sock *sk = (void *)ctx[0];
	u32 before = ctx[1], after = ctx[2];
	struct flow f = {};
	if (!sk || sk->sk_protocol != PROTO_TCP)
		return 0;
	if (after == SYN_SENT) {
		connect_begins(sk);
		return 0;
	}
	if (before != SYN_SENT && before != SYN_RECV)
		return 0;
	if (!flow_of(&sk->__sk_common, &f))
		return 0;
	if (before == SYN_SENT && (after == ESTABLISHED || after == CLOSE))
		connect_ends(sk, &f, after);
	else if (before == SYN_RECV && after == ESTABLISHED)
		accepted(sk, &f);
	return 0;
}

/* Packets. */

struct ports {
	u16 source, destination;
};

static inline_always bool read_v4(void *ip, struct flow *f, u32 *length)
{
	struct {
		u8 version, unused[8], protocol;
		u16 checksum;
		u32 source, destination;
	} h;
	if (bpf_probe_read_kernel(&h, sizeof(h), ip) || h.protocol != PROTO_TCP)
		return false;
	mapped(&f->remote, h.source);
	mapped(&f->local, h.destination);
	*length = (h.version & 15) * 4;
	return true;
}

static inline_always bool read_v6(void *ip, struct flow *f, u32 *length)
{
	struct {
		u8 version, unused[5], protocol, hops;
		struct address source, destination;
	} h;
	if (bpf_probe_read_kernel(&h, sizeof(h), ip) || h.protocol != PROTO_TCP)
		return false;
	f->remote = h.source;
	f->local = h.destination;
	*length = sizeof(h);
	return true;
}

/* incoming fills in the flow of a TCP packet as its receiver sees it. */
static inline_always bool incoming(struct sk_buff *skb, struct flow *f)
{
	void *ip = skb->head + skb->network_header;
	u32 length;
	struct ports p;
	if (skb->protocol == __builtin_bswap16(0x0800)) {
		if (!read_v4(ip, f, &length))
			return false;
	} else if (skb->protocol == __builtin_bswap16(0x86dd)) {
		if (!read_v6(ip, f, &length))
			return false;
	} else {
		return false;
	}
	if (bpf_probe_read_kernel(&p, sizeof(p), ip + length))
		return false;
	f->remote_port = __builtin_bswap16(p.source);
	f->local_port = __builtin_bswap16(p.destination);
	return true;
}

static inline_always void turn(struct flow *f)
{
	struct address a = f->local;
	u16 port = f->local_port;
	f->local = f->remote;
	f->local_port = f->remote_port;
	f->remote = a;
	f->remote_port = port;
}

/* packet_netns reads the socket first. If the packet is in a socket's queue, dev is not valid:
 * its memory has the node of the queue then (struct sk_buff). */
static inline_always u32 packet_netns(struct sk_buff *skb)
{
	struct sock *sk = skb->sk;
	if (sk)
		return netns_of(&sk->__sk_common);
	struct net_device *dev = skb->dev;
	struct net *net = dev ? dev->nd_net.net : NULL;
	return net ? net->ns.inum : 0;
}

static inline_always void reset_sent(struct sock *sk, struct sk_buff *skb, u32 reason)
{
	struct flow f = {};
	if (skb) { /* the packet that is answered; the socket may not be a full one */
		if (!incoming(skb, &f))
			return;
		f.netns = sk ? netns_of(&sk->__sk_common) : packet_netns(skb);
		note(&f, side_of(&f), RESET_SENT, OUTGOING, reason);
	} else if (sk && flow_of(&sk->__sk_common, &f)) {
		note(&f, side_of_socket(sk, &f), RESET_SENT, OUTGOING, reason);
	}
}

SEC("tp_btf/tcp_send_reset")
int penstock_reset_sent(u64 *ctx)
{
	reset_sent((void *)ctx[0], (void *)ctx[1], ctx[2]);
	return 0;
}

/* The same for kernels before 6.10, which give no reason. */
SEC("tp_btf/tcp_send_reset")
int penstock_reset_plain(u64 *ctx)
{
	reset_sent((void *)ctx[0], (void *)ctx[1], 0);
	return 0;
}

/* dropped counts a packet that was thrown away, except for two kinds. Packets left in the queues of
 * a closed socket are freed with the same event (inet_sock_destruct). A packet for a connection that
 * was closed is answered by a reset, which is counted instead. */
static inline_always void dropped(struct sk_buff *skb, u32 reason)
{
	struct flow f = {};
	if (reason && (reason == purged || reason == no_socket))
		return;
	if (!incoming(skb, &f))
		return;
	f.netns = packet_netns(skb);
	if (side_of(&f)) {
		count(&f, DROP, INCOMING, reason);
		return;
	}
	turn(&f);
	note(&f, side_of(&f), DROP, OUTGOING, reason);
}

SEC("tp_btf/kfree_skb")
int penstock_drop(u64 *ctx)
{
	struct sock_common *to = (void *)ctx[3];
	u8 state = 0;
	/* A packet that a socket in TIME_WAIT has answered is freed without a reason (tcp_v4_rcv). */
	if (to && !bpf_probe_read_kernel(&state, 1, (void *)&to->skc_state) && state == TIME_WAIT)
		return 0;
	dropped((void *)ctx[0], ctx[2]);
	return 0;
}

/* The same for kernels before 6.11, which do not say for which socket the packet was. */
SEC("tp_btf/kfree_skb")
int penstock_drop_plain(u64 *ctx)
{
	dropped((void *)ctx[0], ctx[2]);
	return 0;
}

/* Devices. A device without a queue, such as the loopback device, has no function that puts
 * packets into a queue (noqueue_init in net/sched/sch_api.c). */

SEC("tp_btf/net_dev_queue")
int penstock_queue(u64 *ctx)
{
	struct sk_buff *skb = (void *)ctx[0];
	struct net_device *dev = skb->dev;
	struct Qdisc *q = dev ? dev->qdisc : NULL;
	if (!q || !q->enqueue)
		return 0;
	struct sock *sk = skb->sk;
	struct flow f = {};
	if (!sk || !flow_of(&sk->__sk_common, &f) || !side_of(&f))
		return 0;
	u64 key = (u64)skb, now = bpf_ktime_get_ns();
	bpf_map_update_elem(&queued, &key, &now, UPDATE_ANY);
	return 0;
}

SEC("tp_btf/net_dev_start_xmit")
int penstock_dequeue(u64 *ctx)
{
	struct sk_buff *skb = (void *)ctx[0];
	struct net_device *dev = (void *)ctx[1];
	struct Qdisc *q = dev->qdisc;
	if (!q || !q->enqueue)
		return 0;
	u64 key = (u64)skb;
	u64 *begin = bpf_map_lookup_elem(&queued, &key);
	if (!begin)
		return 0;
	u64 took = bpf_ktime_get_ns() - *begin;
	bpf_map_delete_elem(&queued, &key);
	struct sock *sk = skb->sk;
	struct flow f = {};
	if (sk && flow_of(&sk->__sk_common, &f))
		last(&f, side_of(&f), DEVICE_QUEUE, dev->ifindex, took);
	return 0;
}

/* Threads. A thread waits from its wakeup, or from losing the CPU while it could run, until
 * it gets a CPU. */

static inline_always struct thread *thread_of(struct task_struct *t, bool make)
{
	u32 tid = t->pid;
	struct thread *th = bpf_map_lookup_elem(&threads, &tid);
	if (th || !make)
		return th;
	bpf_map_update_elem(&threads, &tid, &no_thread, UPDATE_NOEXIST);
	th = bpf_map_lookup_elem(&threads, &tid);
	if (th)
		th->tgid = t->tgid;
	else
		add(&lost, LOST_THREAD);
	return th;
}

static inline_always void waits(struct task_struct *t)
{
	struct thread *th = thread_of(t, true);
	if (th && !th->since)
		th->since = bpf_ktime_get_ns();
}

SEC("tp_btf/sched_wakeup")
int penstock_wakeup(u64 *ctx)
{
	struct task_struct *t = (void *)ctx[0];
	if (task_matches(t))
		waits(t);
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int penstock_wakeup_new(u64 *ctx)
{
	struct task_struct *t = (void *)ctx[0];
	if (task_matches(t))
		waits(t);
	return 0;
}

static inline_always void leaves(struct task_struct *t, bool preempted)
{
	struct thread *th = thread_of(t, preempted || t->__state == 0);
	if (th)
		th->since = preempted || t->__state == 0 ? bpf_ktime_get_ns() : 0;
}

static inline_always void runs(struct task_struct *t)
{
	struct thread *th = thread_of(t, false);
	if (th && th->since) {
		record(&th->wait, bpf_ktime_get_ns() - th->since);
		th->since = 0;
	}
}

SEC("tp_btf/sched_switch")
int penstock_switch(u64 *ctx)
{
	struct task_struct *before = (void *)ctx[1], *after = (void *)ctx[2];
	if (task_matches(before))
		leaves(before, ctx[0] & 1);
	if (task_matches(after))
		runs(after);
	return 0;
}

/* This is no tracepoint. User space runs it to get the number of clock ticks. It needs only CAP_BPF. */
SEC("syscall")
int penstock_jiffies(void *ctx) { return bpf_jiffies64(); }

/* This one is only loaded, which needs CAP_PERFMON, too. */
SEC("raw_tp/sched_switch")
int penstock_probe(void *ctx) { return 0; }

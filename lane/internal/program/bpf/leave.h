/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* How a session leaves user space, from two sockets to constants. Order matters: notes are read before the sockets. So a
 * packet that went up and has not reached its socket yet is noticed, because the socket lacks it. */
#ifndef LEAVE_H
#define LEAVE_H

#include "parse.h"

/* lookup finds the socket of a side. The caller releases it. */
static inline_always void *lookup(struct __sk_buff *skb, const struct half *h)
{
	if (h->v6) {
		struct tuple6 t = {};
		__builtin_memcpy(t.source, h->in.remote, 16);
		__builtin_memcpy(t.destination, h->in.local, 16);
		t.source_port = h->in.remote_port;
		t.destination_port = h->in.local_port;
		return bpf_skc_lookup_tcp(skb, &t, sizeof t, CURRENT_NETNS, 0);
	}
	struct tuple4 t = {h->in.remote[3], h->in.local[3], h->in.remote_port, h->in.local_port};
	return bpf_skc_lookup_tcp(skb, &t, sizeof t, CURRENT_NETNS, 0);
}

/* unfit returns why the session cannot leave with this socket, or WHY_NONE. */
static inline_always u32 unfit(struct tcp_sock *t, u64 noted)
{
	struct sock *sk = &t->inet_conn.icsk_inet.sk;
	u32 received = t->rcv_nxt;
	if (sk->__sk_common.skc_state != ESTABLISHED || bit_field(t, repair))
		return WHY_NOT_ESTABLISHED;
	if (noted & NOTED_BIG)
		return WHY_BIG_TCP;
	if (noted & (NOTED_RESET | NOTED_LOST))
		return WHY_RESET;
	if ((noted & NOTED) && (u32)noted != received)
		return WHY_IN_FLIGHT;
	if (received != t->copied_seq)
		return WHY_UNREAD;
	if (t->out_of_order_queue.rb_node || sk->sk_backlog.tail)
		return WHY_OUT_OF_ORDER;
	if (t->urg_data)
		return WHY_URGENT;
	if ((t->ecn_flags & ECN_ACCURATE) || (t->ecn_flags & ECN_PENDING))
		return WHY_ECN;
	if (field_exists(t->tcp_usec_ts) && bit_field(t, tcp_usec_ts))
		return WHY_MICROSECONDS;
	if (field_exists(t->is_mptcp) && t->is_mptcp)
		return WHY_MPTCP;
	if ((field_exists(t->md5sig_info) && t->md5sig_info) || (field_exists(t->ao_info) && t->ao_info))
		return WHY_SIGNED;
	if (t->inet_conn.icsk_ulp_ops)
		return WHY_ULP;
	if (sk->sk_gso_max_size > 65536)
		return WHY_BIG_TCP;
	return WHY_NONE;
}

/* routed returns WHY_ROUTE unless the socket's packets leave at the device at which packets of its endpoint arrive. The
 * route must have no IPsec and no tunnel, and must depend on the addresses alone. A socket may be without a route for a
 * while. */
static inline_always u32 routed(struct sock *sk, u32 device)
{
	struct dst_entry *route = sk->sk_dst_cache;
	if (!route || !route->dev || (u32)route->dev->ifindex != device || sk->sk_mark)
		return WHY_ROUTE;
	if ((field_exists(route->xfrm) && route->xfrm) || (field_exists(route->lwtstate) && route->lwtstate))
		return WHY_ROUTE;
	return WHY_NONE;
}

/* apart returns why two sockets cannot be joined, or WHY_NONE: packets of one connection must fit the other. */
static inline_always u32 apart(struct session *s, struct tcp_sock *a, struct tcp_sock *b, u32 headers)
{
	/* A socket that was made again has promised nothing. The endpoint keeps to the promise of the socket before. */
	u32 gives_a = a->advmss, gives_b = b->advmss;
	asm volatile("" : "+r"(gives_a), "+r"(gives_b)); /* otherwise the compiler merges the loads from the socket and from the session */
	if (s->half[0].restored)
		gives_a = s->half[0].gives;
	if (s->half[1].restored)
		gives_b = s->half[1].gives;
	if (bit_field(a, rx_opt.tstamp_ok) != bit_field(b, rx_opt.tstamp_ok))
		return WHY_TIMESTAMPS;
	if (gives_a > b->rx_opt.mss_clamp || gives_b > a->rx_opt.mss_clamp)
		return WHY_MSS;
	if (gives_a + headers > b->inet_conn.icsk_pmtu_cookie || gives_b + headers > a->inet_conn.icsk_pmtu_cookie)
		return WHY_PATH_MTU;
	if ((a->ecn_flags & ECN_OK) != (b->ecn_flags & ECN_OK))
		return WHY_ECN;
	return WHY_NONE;
}

/* lags reports whether the endpoint may have bytes that its socket has not sent yet. */
static inline_always bool lags(const struct half *h, struct tcp_sock *t) { return (h->behind & LAGS) && (s32)(t->snd_nxt - h->reach) < 0; }

/* fill computes the constants of side h from its socket and from the other side's socket. */
static inline_always void fill(struct half *h, struct tcp_sock *mine, struct tcp_sock *other, u32 recent, u32 now)
{
	h->first = mine->rcv_nxt;
	h->first_ack = mine->write_seq;
	h->sequence = other->write_seq - mine->rcv_nxt;
	h->timestamps = bit_field(mine, rx_opt.tstamp_ok);
	h->time = h->timestamps ? now + other->tsoffset - recent : 0;
	h->scale = bit_field(mine, rx_opt.wscale_ok) ? bit_field(mine, rx_opt.snd_wscale) : 0;
	h->unit = bit_field(other, rx_opt.wscale_ok) ? bit_field(other, rx_opt.rcv_wscale) : 0;
	h->sent = h->acked = h->fin = h->asked = h->nudged = h->hole = 0;
	h->behind = 0;
	h->stamp = recent;
	h->window = h->widest = mine->snd_wnd;
	h->takes = mine->rx_opt.mss_clamp;
	u32 least = mine->rtt_min.s[0].v; /* in us (tcp_min_rtt): needed if an endpoint delays each acknowledgement until it answers */
	if (least != ~0U && (!h->least_rtt || least < h->least_rtt))
		h->least_rtt = least + 1;
	h->sack = bit_field(mine, rx_opt.sack_ok) & SACK_SEEN;
	if (!h->restored) {
		h->gives = mine->advmss;
		h->ecn = mine->ecn_flags & ECN_OK;
	}
	/* How much the other endpoint may send: the window of this endpoint, or what our socket has promised. */
	u32 promised = other->rcv_wup + other->rcv_wnd - other->rcv_nxt;
	h->edge = mine->snd_wnd > promised ? mine->snd_wnd : promised;
}

/* join checks both sockets for a packet of side `side`, and fills the session. */
static inline_always u32 join(struct session *s, struct packet *p, u32 side, struct tcp_sock *a, struct tcp_sock *b, u64 noted_a, u64 noted_b)
{
	u32 why = unfit(a, noted_a);
	if (!why)
		why = unfit(b, noted_b);
	if (!why)
		why = routed(&a->inet_conn.icsk_inet.sk, s->half[0].device);
	if (!why)
		why = routed(&b->inet_conn.icsk_inet.sk, s->half[1].device);
	if (!why)
		why = apart(s, a, b, p->v6 ? V6_HEADER + TCP_HEADER : V4_HEADER + TCP_HEADER);
	if (why)
		return why;
	if (lags(&s->half[0], a) || lags(&s->half[1], b))
		return WHY_UNACKNOWLEDGED;
	struct tcp_sock *mine = side ? b : a;
	if (mine->rcv_nxt != p->sequence)
		return WHY_NOT_NEXT;
	/* The socket that the packet is for has not seen the packet's acknowledgement yet. */
	struct tcp_sock *other = side ? a : b;
	if (mine->write_seq != p->ack || other->write_seq != other->snd_una)
		return WHY_UNACKNOWLEDGED;
	u64 ns = bpf_ktime_get_ns();
	u32 now = ns / 1000000; /* as tcp_clock_ms() */
	u32 recent_a = a->rx_opt.ts_recent, recent_b = b->rx_opt.ts_recent;
	/* A socket that was made again, and has not received a packet yet, does not know the last timestamp. */
	if (s->half[0].restored && !recent_a)
		recent_a = s->half[0].stamp;
	if (s->half[1].restored && !recent_b)
		recent_b = s->half[1].stamp;
	if (p->stamped && side)
		recent_b = p->time;
	else if (p->stamped)
		recent_a = p->time;
	s->reset = false;
	if (s->begun)
		s->spent_before += s->last - s->begun;
	s->begun = s->last = ns;
	s->pending = s->acked = s->spoke = s->stalled = s->newest = s->ended_by = 0;
	fill(&s->half[0], a, b, recent_a, now);
	fill(&s->half[1], b, a, recent_b, now);
	return WHY_NONE;
}

/* devices returns WHY_DEVICE unless packets of both sides have been seen, and either both sides or neither are on this
 * host. */
static inline_always u32 devices(struct session *s, struct __sk_buff *skb)
{
	u32 a = s->half[0].device, b = s->half[1].device;
	if (!a || !b || (a == LOOPBACK) != (b == LOOPBACK))
		return WHY_DEVICE;
	s->looped = a == LOOPBACK;
	return WHY_NONE;
}

/* look returns why the session cannot leave with this packet. If it can, look fills the session and returns WHY_NONE. */
global u32 look(struct __sk_buff *skb, struct session *s, struct packet *p, u32 side)
{
	if (!s || !p)
		return WHY_NO_SOCKET;
	u64 noted_a = load(&s->half[0].noted), noted_b = load(&s->half[1].noted);
	u32 why = devices(s, skb);
	if (why)
		return why;
	why = WHY_NO_SOCKET;
	void *x = lookup(skb, &s->half[0]);
	if (!x)
		return why;
	void *y = lookup(skb, &s->half[1]);
	if (!y) {
		bpf_sk_release(x);
		return why;
	}
	struct tcp_sock *a = bpf_skc_to_tcp_sock(x), *b = bpf_skc_to_tcp_sock(y);
	if (a && b)
		why = join(s, p, side, a, b, noted_a, noted_b);
	bpf_sk_release(x);
	bpf_sk_release(y);
	return why;
}

/* give_end turns an acknowledgement into an end of file, for a socket that was made again after its endpoint had ended
 * in the lane: the endpoint does not send its end of file again. Otherwise the socket would wait for it for a minute after
 * all is over, and a SYN from the same port would be refused (net/ipv4/tcp_minisocks.c, tcp_timewait_state_process).
 * give_end returns whether the packet must be dropped. */
static never_inline int give_end(struct __sk_buff *skb, struct half *h, struct packet *p)
{
	u32 end = h->first + (u32)load(&h->fin), at = tcp_at(p), was, is;
	u8 bits[4];
	if (p->length || (p->flags & (SYN | FIN | RST)) || p->sequence != end)
		return 0;
	void *x = lookup(skb, h);
	if (!x)
		return 0;
	struct tcp_sock *t = bpf_skc_to_tcp_sock(x);
	bool owed = t && t->rcv_nxt == end - 1;
	bpf_sk_release(x);
	if (!owed) {
		h->behind &= ~OWES_END;
		return 0;
	}
	if (store32(skb, p, SEQUENCE, end, end - 1))
		return 1;
	if (bpf_skb_load_bytes(skb, at + 12, bits, sizeof bits))
		return 1;
	__builtin_memcpy(&was, bits, sizeof was);
	bits[1] |= FIN;
	__builtin_memcpy(&is, bits, sizeof is);
	if (bpf_skb_store_bytes(skb, at + 12, bits, sizeof bits, 0))
		return 1;
	return bpf_l4_csum_replace(skb, at + CHECKSUM, was, is, sizeof is) ? 1 : 0;
}

/* catch_up lowers the acknowledgement of a packet that goes up to a socket that was made again. The endpoint may have
 * received bytes although the lane has not seen their acknowledgement. The other endpoint sends them again. Until then the
 * socket has not sent them, and would drop a packet that acknowledges them, with its data (tcp_ack, TCP_ACK_UNSENT_DATA).
 * If this happened on both sides, neither side would go on. catch_up returns whether the packet must be dropped. */
global int catch_up(struct __sk_buff *skb, struct half *h, struct packet *p)
{
	if (!h || !p)
		return 1;
	if ((h->behind & OWES_END) && give_end(skb, h, p))
		return 1;
	if (!(h->behind & LAGS))
		return 0;
	void *x = lookup(skb, h);
	if (!x)
		return 0;
	struct tcp_sock *t = bpf_skc_to_tcp_sock(x);
	u32 sent = t ? t->snd_nxt : p->ack;
	bool lagging = t && lags(h, t);
	bpf_sk_release(x);
	if (!lagging && t)
		h->behind &= ~LAGS;
	if (!lagging || (s32)(p->ack - sent) <= 0)
		return 0;
	return store32(skb, p, ACKNOWLEDGEMENT, p->ack, sent);
}

/* reset_at_reach changes the number of an RST from a socket that was made again to the number after everything that the
 * lane has carried to the endpoint. The socket's own number may be before bytes that the endpoint has received, and then
 * the endpoint would ignore the RST. An endpoint that has not received them answers, and gets an RST at the number that it
 * expects (RFC 5961, 3.2). */
global int reset_at_reach(struct __sk_buff *skb, struct half *h, struct packet *p)
{
	if (!h || !p)
		return 1;
	h->behind = 0;
	if ((s32)(h->reach - p->sequence) <= 0)
		return 0;
	return store32(skb, p, SEQUENCE, p->sequence, h->reach);
}

/* stamp reads the timestamp of a packet. */
global int stamp(struct __sk_buff *skb, struct packet *p)
{
	if (!p)
		return -1;
	struct walk k = {.at = TCP_HEADER};
	u32 size = p->header;
	if (size < TCP_HEADER || size > TCP_MOST || bpf_skb_load_bytes(skb, tcp_at(p), k.word, size))
		return -1;
	k.end = size;
	options(&k);
	p->time = k.stamp;
	p->stamped = k.stamped;
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* How a gap is made in a session that has none. While a side is shut, its endpoint sees a window of 0 in everything that
 * the socket sends, and sends only the rest of what it has begun to send. The socket does not know this: it accepts
 * everything that arrives. While both sides are shut, no promise is taken back, and each endpoint sends what it was
 * promised before. If promises were taken back, an endpoint would acknowledge with an earlier number
 * (net/ipv4/tcp_output.c, tcp_acceptable_seq). That packet would be dropped, and the flow from the other endpoint would
 * stand still. */
#ifndef SHUT_H
#define SHUT_H

#include "leave.h"

enum { BOTH = 3 };

enum { SHOWN, NO_PROBE, NOT_SHOWN };

/* announce makes a socket's probe show its endpoint a window. The window is no larger than the window of the other
 * endpoint, which gets everything that comes once the session has left. announce also changes the probe's number to the
 * number that the socket sends next. The probe's own number is already acknowledged (net/ipv4/tcp_output.c,
 * tcp_xmit_probe_skb), so the endpoint would answer and would not take the window from it. */
static inline_always int announce(struct __sk_buff *skb, struct session *s, struct packet *p, u32 side)
{
	void *x = lookup(skb, side ? &s->half[1] : &s->half[0]);
	if (!x)
		return NO_PROBE;
	void *y = lookup(skb, side ? &s->half[0] : &s->half[1]);
	if (!y) {
		bpf_sk_release(x);
		return NO_PROBE;
	}
	struct tcp_sock *t = bpf_skc_to_tcp_sock(x), *o = bpf_skc_to_tcp_sock(y);
	bool probe = t && o && p->sequence == t->snd_una - 1;
	u32 sequence = t ? t->snd_nxt : 0, takes = o ? o->snd_wnd : 0;
	takes >>= t && bit_field(t, rx_opt.wscale_ok) ? bit_field(t, rx_opt.rcv_wscale) & 15 : 0;
	bpf_sk_release(x);
	bpf_sk_release(y);
	if (!probe)
		return NO_PROBE;
	u16 window = takes < p->window ? takes : p->window;
	return store32(skb, p, SEQUENCE, p->sequence, sequence) || store16(skb, p, WINDOW, p->window, window) ? NOT_SHOWN : SHOWN;
}

/* window_held returns a window for a packet that promises no more than was promised when the sides were shut, rounded up
 * to a unit. */
static inline_always u16 window_held(struct __sk_buff *skb, struct session *s, struct packet *p, u32 side)
{
	void *x = lookup(skb, side ? &s->half[1] : &s->half[0]);
	if (!x)
		return 0;
	struct tcp_sock *t = bpf_skc_to_tcp_sock(x);
	u32 promised = t ? t->rcv_wup + t->rcv_wnd : p->ack;
	u32 scale = t && bit_field(t, rx_opt.wscale_ok) ? bit_field(t, rx_opt.rcv_wscale) : 0;
	bpf_sk_release(x);
	u32 held = s->held[side & 1];
	if (!held)
		s->held[side & 1] = held = promised ? promised : 1;
	s32 left = held - p->ack;
	if (left <= 0)
		return 0;
	u32 window = (left + (1u << (scale & 15)) - 1) >> (scale & 15);
	return window < p->window ? window : p->window;
}

/* show changes a packet that the socket of a side sends, and returns whether the packet must be dropped. */
global int show(struct __sk_buff *skb, struct session *s, struct packet *p, u32 side)
{
	if (!s || !p)
		return 1;
	if ((s->opens & (1 << (side & 1))) && !p->length && !(p->flags & (SYN | FIN | RST))) {
		int is = announce(skb, s, p, side);
		if (is != NO_PROBE)
			return is == NOT_SHOWN;
	}
	if (!(s->shut & (1 << (side & 1))) || (p->flags & (SYN | RST)))
		return 0;
	return store16(skb, p, WINDOW, p->window, s->shut == BOTH ? window_held(skb, s, p, side) : 0);
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* A gap in a flow that has none: while a side is shut its endpoint sees a window of 0 in all that the socket sends, and ends what it has begun to
 * send. The socket knows nothing of it: it takes all that arrives. */
#ifndef SHUT_H
#define SHUT_H

#include "leave.h"

/* next_number gives the probe of a socket the number that it sends next: the probe's own is one that the endpoint has acknowledged
 * (net/ipv4/tcp_output.c, tcp_xmit_probe_skb), so that it would answer, and take no window from it. */
static inline_always int next_number(struct __sk_buff *skb, struct packet *p, const struct half *h)
{
	void *x = lookup(skb, h);
	if (!x)
		return 0;
	struct tcp_sock *t = bpf_skc_to_tcp_sock(x);
	bool probe = t && p->sequence == t->snd_una - 1;
	u32 next = t ? t->snd_nxt : 0;
	bpf_sk_release(x);
	if (!probe)
		return 0;
	u32 at = tcp_at(p), was = to_net32(p->sequence), is = to_net32(next);
	if (bpf_skb_store_bytes(skb, at + SEQUENCE, &is, sizeof is, 0))
		return 1;
	return bpf_l4_csum_replace(skb, at + CHECKSUM, was, is, sizeof is) ? 1 : 0;
}

/* show changes what the socket of a side sends, and returns whether the packet is to be dropped. */
static never_inline int show(struct __sk_buff *skb, struct session *s, struct packet *p, u32 side)
{
	const struct half *h = side ? &s->half[1] : &s->half[0];
	if ((s->opens & (1 << (side & 1))) && !p->length && !(p->flags & (SYN | FIN | RST)))
		return next_number(skb, p, h);
	if (!(s->shut & (1 << (side & 1))) || (p->flags & (SYN | RST)))
		return 0;
	u32 at = tcp_at(p);
	u16 was = to_net16(p->window), is = 0;
	if (bpf_skb_store_bytes(skb, at + WINDOW, &is, sizeof is, 0))
		return 1;
	return bpf_l4_csum_replace(skb, at + CHECKSUM, was, is, sizeof is) ? 1 : 0;
}

#endif

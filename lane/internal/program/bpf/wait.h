/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* How a session's time passes: from one packet to the next it counts for the side that was waited for, and
 * a wait for data when that comes. The oracle is translate.Clock. Sums are added to without a lock: two CPUs
 * that carry packets of one session at a time may lose a part of them. */
#ifndef WAIT_H
#define WAIT_H

#include "session.h"

/* missing reports whether the endpoint of o lacks data of h that has not been here. */
static inline_always bool missing(struct half *h, struct half *o) { return h->hole && load(&o->acked) < h->hole; }

/* shut reports whether the window of h keeps a segment of o back: one of the loopback, of nearly 64 KiB, is sent in parts. */
static inline_always bool shut(struct half *h, struct half *o)
{
	u32 segment = h->takes < ORDINARY ? h->takes : ORDINARY;
	return (s64)load(&o->sent) + segment > (s64)load(&h->edge);
}

/* before notes the wait that a packet of side `side` ends, or is in the middle of. */
static inline_always void before(struct packet *p, struct half *h, struct half *o, u32 side)
{
	if (missing(h, o)) {
		p->wait = 1 + WAIT_GAP;
		p->waited = side;
	} else if (missing(o, h)) {
		p->wait = 1 + WAIT_GAP;
		p->waited = 1 - side;
	} else if (shut(o, h)) {
		p->wait = 1 + WAIT_WINDOW;
		p->waited = 1 - side;
	} else if (shut(h, o)) {
		p->wait = 1 + WAIT_WINDOW;
		p->waited = side;
	} else if (load(&h->sent) > load(&o->acked) + o->takes) {
		p->wait = 1 + WAIT_FLIGHT;
		p->waited = 1 - side;
	}
}

/* passed counts the time until a packet. */
static never_inline int passed(struct session *s, struct packet *p, u32 side, u64 now)
{
	struct half *h = side ? &s->half[1] : &s->half[0], *o = side ? &s->half[0] : &s->half[1];
	u32 ticks = (now >> TICK) - (s->last >> TICK), spoke = s->spoke;
	if (now < s->last)
		ticks = 0; /* of another CPU */
	if (p->wait == 1 + WAIT_GAP || p->wait == 1 + WAIT_WINDOW) {
		struct half *w = p->waited ? &s->half[1] : &s->half[0];
		w->waits[p->wait == 1 + WAIT_WINDOW ? WAIT_WINDOW : WAIT_GAP] += ticks;
	} else {
		s->pending += ticks;
	}
	u32 wait = s->pending;
	if (p->stray || !p->length) {
		if (p->news)
			s->acked = wait;
		return 0;
	}
	u32 acked = s->acked;
	s->pending = s->acked = 0;
	s->spoke = 1 + side;
	if (!wait)
		return 0;
	if (p->again) {
		o->waits[WAIT_AGAIN] += wait;
	} else if (wait >= QUIET && !(side == 1 && spoke == 1)) {
		return 0; /* nothing was asked for */
	} else if (spoke == 2 - side) {
		h->waits[WAIT_ANSWER] += wait;
		h->answers++;
	} else if (p->wait == 1 + WAIT_FLIGHT) {
		o->waits[WAIT_FLIGHT] += wait;
	} else {
		u64 least = h->least_rtt ? (h->least_rtt - 1) * 1000ULL >> TICK : 0;
		if (acked && wait - acked <= least + AT_ONCE) {
			o->waits[WAIT_ACK] += acked;
			wait -= acked;
		}
		h->waits[WAIT_MORE] += wait;
		h->pauses++;
	}
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* What a session's time is spent on. The time from one packet to the next counts for the side that was waited for. A
 * wait for data counts when the data comes. The oracle is translate.Clock. Sums are changed without a lock: if two CPUs
 * carry packets of one session at the same time, a part of a sum can get lost. */
#ifndef WAIT_H
#define WAIT_H

#include "session.h"

/* missing reports whether the endpoint of o lacks data of h that has not been here. */
static inline_always bool missing(struct half *h, struct half *o) { return h->hole && load(&o->acked) < h->hole; }

/* room is how much is left of the last window of h. A sender keeps to the last window. The edge can come from an earlier
 * window, or from the socket here. */
static inline_always s64 room(struct half *h, struct half *o) { return (s64)(load(&h->acked) + h->window) - (s64)load(&o->sent); }

/* segment is the size of the segments that are sent to h. Senders on the loopback send parts of segments
 * of nearly 64 KiB. */
static inline_always u32 segment(struct half *h) { return h->takes < ORDINARY ? h->takes : ORDINARY; }

/* shut reports whether the window of h is too small for another segment. */
static inline_always bool shut(struct half *h, s64 room) { return room < segment(h); }

/* narrow reports whether the window of h may keep back a sender that paces, or that wants to send more than a segment at
 * a time. */
static inline_always bool narrow(struct half *h, s64 room) { return room < 2 * segment(h) || NARROW * room < h->widest; }

/* before notes the wait that goes on when a packet of side `side` comes. */
static inline_always void before(struct packet *p, struct half *h, struct half *o, u32 side)
{
	s64 left = room(h, o), other = room(o, h);
	p->narrow = narrow(h, left) << side | narrow(o, other) << (1 - side);
	if (missing(h, o)) {
		p->wait = 1 + WAIT_GAP;
		p->waited = side;
	} else if (missing(o, h)) {
		p->wait = 1 + WAIT_GAP;
		p->waited = 1 - side;
	} else if (shut(o, other)) {
		p->wait = 1 + WAIT_WINDOW;
		p->waited = 1 - side;
	} else if (shut(h, left)) {
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
		ticks = 0; /* another CPU has stamped a later packet */
	if (p->wait == 1 + WAIT_GAP || p->wait == 1 + WAIT_WINDOW) {
		struct half *w = p->waited ? &s->half[1] : &s->half[0];
		w->waits[p->wait == 1 + WAIT_WINDOW ? WAIT_WINDOW : WAIT_GAP] += ticks;
	} else {
		s->pending += ticks;
	}
	if (p->narrow & 1)
		s->half[0].narrow += ticks;
	if (p->narrow & 2)
		s->half[1].narrow += ticks;
	u32 wait = s->pending;
	if (p->news && s->stalled == 2 - side)
		s->stalled = 0;
	if (p->stray || !p->length || p->stale) {
		if (p->news)
			s->acked = wait;
		return 0;
	}
	bool again = p->again || s->stalled == 1 + side;
	if (p->again)
		s->stalled = 1 + side;
	u32 acked = s->acked;
	s->pending = s->acked = 0;
	s->spoke = 1 + side;
	if (!wait)
		return 0;
	if (again) {
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

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* The lane. At tc ingress, packets of joined sessions become packets of the other connection. At tc egress, a guard
 * drops what the sockets of such sessions would send. The states and their changes are in lane/internal/state, and the
 * order of steps is in its model. */
#include "error.h"
#include "find.h"
#include "leave.h"
#include "shut.h"
#include "wait.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, MAP_RINGBUF);
	__uint(max_entries, 1 << 16);
} events SEC(".maps");

/* This makes bpf2go write the type. */
const struct event *described __attribute__((unused));

static inline_always void report(struct session *s, u32 slot, u32 state, bool reset)
{
	struct event e = {slot, s->generation, state, reset};
	bpf_ringbuf_output(&events, &e, sizeof e, 0);
}

/* note notes that data up to the packet's end, or an RST, goes up to the socket. If that is noted already, no barrier is
 * needed: a claim that reads the older note is right for this packet too. */
static inline_always void note(struct half *h, const struct packet *p)
{
	u32 end = p->sequence + p->length + (p->flags & FIN ? 1 : 0);
	if (p->flags & RST) {
		__sync_fetch_and_or(&h->noted, NOTED_RESET);
		return;
	}
	for (int i = 0; i < 8; i++) {
		u64 old = load(&h->noted);
		if ((old & NOTED) && (s32)(end - (u32)old) <= 0)
			return;
		if (swap(&h->noted, old, (old & ~0xffffffffULL) | NOTED | end))
			return;
	}
	__sync_fetch_and_or(&h->noted, NOTED_LOST);
}

/* position returns the position of a number that is close to a known position. */
static inline_always s64 position(u32 first, u64 known, u32 number) { return (s64)known + (s32)(number - (first + (u32)known)); }

/* late is how far a packet can be behind an acknowledgement: the largest window (RFC 5961, 5.2), and at least LATE, because
 * the packet may be for the socket before. */
static inline_always s64 late(const struct half *h) { return h->widest > LATE ? h->widest : LATE; }

/* acknowledge notes an acknowledgement, and reports whether it fits. */
static inline_always bool acknowledge(struct half *h, struct half *o, struct packet *p)
{
	s64 known = load(&h->acked), ack = position(h->first_ack, known, p->ack);
	if (ack > (s64)load(&o->sent) || ack < known - late(h))
		return false;
	if (ack < 0)
		return true;
	raise(&h->acked, ack);
	p->news = ack > known;
	/* A small window is rounded up to a unit, and the other endpoint may use the whole unit. */
	u64 window = (u64)p->window << (h->scale & 15), shown = (u64)unscaled(h, p->window) << (h->unit & 15);
	if (shown > window)
		window = shown;
	raise(&h->edge, ack + window);
	if (ack >= known) {
		if (!window && h->window)
			h->zeros++;
		h->window = window;
		if (window > h->widest)
			h->widest = window;
	}
	return true;
}

/* data counts a packet with data. */
static inline_always void data(struct half *h, struct half *o, struct packet *p, s64 begin, s64 end, s64 sent)
{
	bool gap = missing(h, o);
	s64 acked = load(&o->acked);
	h->segments++;
	h->payload += p->length;
	if (end <= sent) {
		h->repeats++;
		h->resent += begin <= acked && end > acked;
		p->stale = end <= acked;
		h->lost += p->again = !gap && !p->stale;
		return;
	}
	if (begin > sent)
		h->hole = sent + 1;
	h->behind_gap += gap || begin > sent;
}

/* What a packet means for the account. */
enum { STRAY, FITS, RESETS, BEYOND };

/* beyond reports whether a packet has data at the FIN's number or behind it. No endpoint sends such data, so the FIN has
 * not arrived, for example because its checksum was wrong. Once the FIN is acknowledged, a keepalive probe may have a byte
 * there. */
static inline_always bool beyond(s64 fin, s64 acked, s64 data, s64 end, u32 length)
{
	return fin && (end > fin || (length && acked < fin && data >= fin));
}

/* misplaced reports whether a FIN is at a number at which no FIN can be: another FIN was at a different number, or the
 * byte is acknowledged. */
static inline_always bool misplaced(s64 fin, s64 acked, s64 end) { return fin ? end != fin : end <= acked; }

/* account notes a packet in the lane (translate.Flow.Note). */
static inline_always u32 account(struct half *h, struct half *o, struct packet *p)
{
	s64 begin = position(h->first, load(&h->sent), p->sequence), end = begin + p->length + (p->flags & FIN ? 1 : 0);
	s64 acked = load(&o->acked), sent = load(&h->sent), fin = load(&h->fin);
	if (p->flags & RST) {
		if (begin == acked || begin == sent)
			return RESETS;
		if (!p->length)
			return STRAY;
	}
	if (beyond(fin, acked, begin + p->length, end, p->length))
		return BEYOND;
	if ((p->flags & (SYN | RST | ACK)) != ACK || end > (s64)load(&o->edge) + 1 || begin < acked - late(o))
		return STRAY;
	if ((p->flags & FIN) && misplaced(fin, acked, end))
		return STRAY;
	if (!acknowledge(h, o, p))
		return STRAY;
	if (p->length)
		data(h, o, p, begin, end, sent);
	if (p->flags & FIN)
		swap(&h->fin, 0, end); /* before the number that counts it as a byte; a reader reads that number first */
	if (end > begin && end > 0) /* an acknowledgement without data can have a number after bytes, or after an end of file, that were lost before the lane */
		raise(&h->sent, end);
	return FITS;
}

/* mean returns the mean of the round trip since a time and the round trip before. */
static inline_always u32 mean(u32 before, u64 since, u64 now)
{
	u32 took = (now - since) / 1000 + 1;
	return before ? (before + took) / 2 : took;
}

/* stamps notes the timestamps of a packet that fits, and measures two round trips to its endpoint: from a packet of the
 * other side until the first packet that echoes its timestamp, and from a packet without data until the first packet with
 * data. If another CPU does the same, only one measurement is wrong. */
static inline_always void stamps(struct half *h, struct half *o, const struct packet *p, u64 now)
{
	raise_stamp(&h->stamp, p->time);
	if (p->length && !h->asked) {
		h->asked_stamp = p->time;
		h->asked = now;
	} else if (!p->length && !h->nudged) {
		h->nudged_stamp = p->time;
		h->nudged = now;
	}
	if (!(p->flags & ACK))
		return;
	u64 asked = o->asked, nudged = o->nudged;
	u32 took = 0;
	if (asked && (s32)(p->echo - o->asked_stamp) >= 0) {
		o->asked = 0;
		h->rtt = mean(h->rtt, asked, now);
		took = mean(0, asked, now);
	}
	if (nudged && p->length && (s32)(p->echo - o->nudged_stamp) >= 0) {
		o->nudged = 0;
		h->data_rtt = mean(h->data_rtt, nudged, now);
		if (!took)
			took = mean(0, nudged, now);
	}
	if (took && (!h->least_rtt || took < h->least_rtt))
		h->least_rtt = took;
}

static inline_always bool ended(struct half *a, struct half *b)
{
	u64 x = load(&a->fin), y = load(&b->fin);
	return x && y && load(&b->acked) >= x && load(&a->acked) >= y;
}

/* weigh enters the packet in the account, and in the session's time. It is not a part of pass because of the size of its
 * stack. */
global u32 weigh(struct session *s, struct packet *p, u32 side)
{
	if (!s || !p)
		return STRAY;
	struct half *h = side ? &s->half[1] : &s->half[0], *o = side ? &s->half[0] : &s->half[1];
	u64 sent = load(&h->sent);
	before(p, h, o, side);
	u32 fit = account(h, o, p);
	u64 now = p->now = bpf_ktime_get_ns();
	if (p->length && load(&h->sent) > sent)
		s->newest = side + 1;
	__sync_fetch_and_add(&h->packets, 1);
	p->stray = fit != FITS;
	passed(s, p, side, now);
	s->last = now;
	if (fit == RESETS || (!s->ended_by && fit == FITS && (p->flags & FIN)))
		s->ended_by = 1 + side;
	return fit;
}

/* pass gives the translated packet to the other connection. */
global int pass(struct __sk_buff *skb, struct session *s, struct packet *p, struct place *at, u32 fit)
{
	if (!s || !p || !at)
		return DROP;
	struct half *h = at->side ? &s->half[1] : &s->half[0], *o = at->side ? &s->half[0] : &s->half[1];
	if (fit == FITS && p->stamped)
		stamps(h, o, p, p->now);
	if (fit == RESETS)
		s->reset = true;
	if (fit == RESETS || ended(h, o)) {
		u64 word = load(&s->word);
		if (state_of(word) == STATE_LANE && MAY_INGRESS_LANE_TO_DONE && change(s, word, STATE_DONE))
			report(s, at->slot, STATE_DONE, fit == RESETS);
	}
	if (s->looped)
		return NEXT;
	skb->tc_index = CARRIED;
	return bpf_redirect_neigh(o->device, NULL, 0, 0);
}

/* carry handles a packet of a session in the lane. */
static inline_always int carry(struct __sk_buff *skb, struct session *s, struct packet *p, struct place *at)
{
	if ((p->flags & (SYN | ACK)) == SYN && state_of(load(&s->word)) == STATE_DONE) { /* a new connection with this tuple */
		forget(&p->key, at);
		return NEXT;
	}
	u32 fit = weigh(s, p, at->side);
	if (translate(skb, s, p, at->side) || fit == BEYOND)
		return DROP;
	return pass(skb, s, p, at, fit);
}

/* claim makes the session leave user space with this packet if it can, and reports whether the session is in the lane. */
static inline_always bool claim(struct __sk_buff *skb, struct session *s, struct packet *p, struct place *at, u64 word)
{
	u64 mine = next(word, STATE_CLAIMED);
	if (!MAY_INGRESS_ARMED_TO_CLAIMED || !swap(&s->word, word, mine))
		return false;
	s->tries++;
	stamp(skb, p);
	u32 why = p->flags & URG ? WHY_URGENT : look(skb, s, p, at->side);
	if (!why && MAY_CLAIMER_CLAIMED_TO_LANE) {
		if (change(s, mine, STATE_LANE)) {
			report(s, at->slot, STATE_LANE, false);
			return true;
		}
		why = WHY_TAKEN;
	}
	s->why = why;
	note(at->side ? &s->half[1] : &s->half[0], p);
	if (MAY_CLAIMER_CLAIMED_TO_USER)
		change(s, mine, STATE_USER);
	return false;
}

/* up lets a packet that is noted go up to the socket, unless the lane has taken the session meanwhile. */
static inline_always int up(struct __sk_buff *skb, struct session *s, struct packet *p, struct place *at)
{
	for (int i = 0; i < 4; i++) {
		u64 word = load(&s->word);
		switch (state_of(word)) {
		case STATE_LANE:
		case STATE_DONE:
			return carry(skb, s, p, at);
		case STATE_HELD:
			return DROP;
		case STATE_CLAIMED:
			if (MAY_INGRESS_CLAIMED_TO_USER && change(s, word, STATE_USER))
				return NEXT;
			break;
		default:
			return NEXT;
		}
	}
	return DROP; /* like a full queue: the endpoint sends the packet again */
}

/* too_big passes an error on to the endpoint that has sent the quoted packet, if the error is about a packet of a
 * session and is believed. An error about no session passes. */
global int too_big(struct __sk_buff *skb)
{
	u32 was[V6_ERROR / 4] = {}, is[V6_ERROR / 4];
	struct tuple key;
	struct place at;
	bool v6 = skb->protocol == to_net16(0x86dd);
	if (skb->vlan_present || (!v6 && skb->protocol != to_net16(0x0800)))
		return NEXT;
	if (v6 ? !read_v6(skb, was, &key) : !read_v4(skb, was, &key))
		return NEXT;
	struct session *s = find(&key, &at);
	if (!s || s->looped || (state_of(load(&s->word)) != STATE_LANE && state_of(load(&s->word)) != STATE_DONE))
		return NEXT;
	struct half *h = at.side ? &s->half[0] : &s->half[1], *o = at.side ? &s->half[1] : &s->half[0]; /* packets of h are sent on this connection */
	if (!believed(was, v6, h, o))
		return DROP;
	__builtin_memcpy(is, was, sizeof is);
	if (v6 ? write_v6(skb, was, is, h) : write_v4(skb, was, is, h))
		return DROP;
	skb->tc_index = CARRIED;
	return bpf_redirect_neigh(h->device, NULL, 0, 0);
}

/* turned returns the tuple of packets in the other direction. */
static inline_always struct tuple turned(const struct tuple *t)
{
	struct tuple o = {.remote_port = t->local_port, .local_port = t->remote_port};
	__builtin_memcpy(o.remote, t->local, 16);
	__builtin_memcpy(o.local, t->remote, 16);
	return o;
}

/* odd handles a packet that parse refuses. If the lane has the packet's session, the packet is dropped, because it could
 * only reach a listener. If it is a packet of big TCP, it is also noted, so that the session returns. A session in user
 * space stays there, because more such packets may come. */
global int odd(struct __sk_buff *skb, u32 arrives)
{
	struct tuple key;
	struct place at;
	if (!odd_tuple(skb, &key))
		return NEXT;
	if (!arrives)
		key = turned(&key);
	struct session *s = find(&key, &at);
	if (!s)
		return NEXT;
	if (arrives)
		__sync_fetch_and_or(at.side ? &s->half[1].noted : &s->half[0].noted, skb->len > ETHER + 0xffff ? NOTED_LOST | NOTED_BIG : NOTED_LOST);
	for (int i = 0; i < 4; i++) {
		u64 word = load(&s->word);
		switch (state_of(word)) {
		case STATE_LANE:
		case STATE_DONE:
		case STATE_HELD:
			return DROP;
		case STATE_CLAIMED:
			if (!arrives || (MAY_INGRESS_CLAIMED_TO_USER && change(s, word, STATE_USER)))
				return NEXT;
			break;
		default:
			return NEXT;
		}
	}
	return DROP;
}

/* other handles a packet that arrives and that parse refuses. */
static inline_always int other(struct __sk_buff *skb)
{
	int answer = odd(skb, true);
	return answer == NEXT ? too_big(skb) : answer;
}

SEC("tc")
int penstock_ingress(struct __sk_buff *skb)
{
	if (of_none(skb, true))
		return NEXT;
	struct packet p = {};
	struct place at;
	if (!parse(skb, &p))
		return other(skb);
	struct session *s = find(&p.key, &at);
	if (!s)
		return NEXT;
	struct half *h = at.side ? &s->half[1] : &s->half[0];
	u64 word = load(&s->word);
	u32 state = state_of(word);
	switch (state) {
	case STATE_LANE:
	case STATE_DONE:
		if (s->looped && skb->ifindex != LOOPBACK)
			return DROP; /* the packet comes from another device with addresses of this host, and the kernel would drop it too (net/ipv4/route.c, martian source) */
		return carry(skb, s, &p, &at);
	case STATE_HELD:
		return DROP;
	case STATE_FREE:
	case STATE_RESET:
		return NEXT;
	}
	if (h->device != skb->ifindex)
		h->device = skb->ifindex;
	if (p.congested && h->ecn && h->restored)
		return DROP; /* the socket does not know any more that it has ECN, so the mark becomes a loss, as without ECN (RFC 3168, 5) */
	if (h->behind && (p.flags & ACK) && catch_up(skb, h, &p))
		return DROP;
	if ((p.flags & SYN) || (!p.length && !(p.flags & (FIN | RST))))
		return NEXT;
	if (state == STATE_ARMED && p.length && !(p.flags & (FIN | RST))) {
		if (claim(skb, s, &p, &at, word))
			return carry(skb, s, &p, &at);
	}
	note(h, &p);
	return up(skb, s, &p, &at);
}

SEC("tc")
int penstock_egress(struct __sk_buff *skb)
{
	if (skb->tc_index == CARRIED || of_none(skb, false))
		return NEXT;
	struct packet p = {};
	struct place at;
	if (!parse(skb, &p))
		return odd(skb, false);
	struct tuple arriving = turned(&p.key);
	struct session *s = find(&arriving, &at);
	if (!s)
		return NEXT;
	bool end = p.flags & (FIN | RST);
	if (skb->priority == PROBE && !end && !p.length && state_of(load(&s->word)) == STATE_LANE)
		return NEXT;
	if (((s->shut | s->opens) & (1 << (at.side & 1))) && show(skb, s, &p, at.side))
		return DROP;
	struct half *h = at.side ? &s->half[1] : &s->half[0];
	if (h->behind && (p.flags & RST) && state_of(load(&s->word)) <= STATE_CLAIMED && reset_at_reach(skb, h, &p))
		return DROP;
	for (int i = 0; i < 4; i++) {
		u64 word = load(&s->word);
		switch (state_of(word)) {
		case STATE_ARMED:
			if (!end || (MAY_EGRESS_ARMED_TO_USER && change(s, word, STATE_USER)))
				return NEXT;
			break;
		case STATE_CLAIMED:
			if ((!end && !p.length) || (MAY_EGRESS_CLAIMED_TO_USER && change(s, word, STATE_USER)))
				return NEXT;
			break;
		case STATE_HELD: /* the owner announces a window */
			return end || p.length || (p.flags & SYN) ? DROP : NEXT;
		case STATE_LANE:
		case STATE_DONE:
			return DROP;
		default:
			return NEXT;
		}
	}
	return DROP; /* like a full queue: the socket sends the packet again */
}

/* Whether the kernel knows the flag of bpf_l4_csum_replace that v6_flags is for: it returns 0 if so. */
SEC("tc")
int penstock_probe(struct __sk_buff *skb) { return bpf_l4_csum_replace(skb, ETHER + V6_HEADER + CHECKSUM, 0, 0, PSEUDO_HEADER | 1 << 7) ? 1 : 0; }

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* The lane: at tc ingress packets of joined sessions are made those of the other connection; at
 * tc egress a guard keeps in what the sockets of such sessions would send. States and their
 * changes are those of lane/internal/state, and the order of steps is that of its model. */
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

/* The type is wanted in Go. */
const struct event *described __attribute__((unused));

static inline_always void report(struct session *s, u32 slot, u32 state, bool reset)
{
	struct event e = {slot, s->generation, state, reset};
	bpf_ringbuf_output(&events, &e, sizeof e, 0);
}

/* note has it known that data up to end, or an RST, is let up to the socket. What is already noted
 * needs no barrier: a claim that reads the older note is right for this packet too. */
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

/* position returns where a number is that is near to a known position. */
static inline_always s64 position(u32 first, u64 known, u32 number) { return (s64)known + (s32)(number - (first + (u32)known)); }

/* late is how far behind an acknowledgement a packet may be: the largest window (RFC 5961, 5.2), and one of the socket before. */
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
	/* A small window is rounded up to a unit, and the other endpoint may use all of that. */
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

/* What a packet is for the account. */
enum { STRAY, FITS, RESETS, BEYOND };

/* beyond reports whether a packet has data at the FIN's number or behind, where no endpoint has any: the FIN has not arrived,
 * as with a wrong checksum. Once it is acknowledged a keepalive probe may have a byte there. */
static inline_always bool beyond(s64 fin, s64 acked, s64 data, s64 end, u32 length)
{
	return fin && (end > fin || (length && acked < fin && data >= fin));
}

/* misplaced reports whether a FIN is at a number where none can be: that of another FIN, or of a byte that is acknowledged. */
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
		swap(&h->fin, 0, end); /* before the number that counts it as a byte, which is read before it */
	if (end > begin && end > 0) /* the number of an acknowledgement may be behind bytes, or an end of file, that are lost before here */
		raise(&h->sent, end);
	return FITS;
}

/* mean is the mean of a round trip since a time and the one before. */
static inline_always u32 mean(u32 before, u64 since, u64 now)
{
	u32 took = (now - since) / 1000 + 1;
	return before ? (before + took) / 2 : took;
}

/* stamps notes the timestamps of a packet that fits, and how long the way to its endpoint and back
 * has taken: from a packet of the other side to the first that echoes its timestamp, and from one without data
 * to the first with data. Another CPU that does the same makes one measure wrong, and nothing else. */
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

/* weigh has the packet in the account, and in the session's time. It is apart from pass for its stack. */
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

/* pass gives the packet, as it is now, to the other connection. */
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

/* carry is what becomes of a packet in the lane. */
static inline_always int carry(struct __sk_buff *skb, struct session *s, struct packet *p, struct place *at)
{
	if ((p->flags & (SYN | ACK)) == SYN && state_of(load(&s->word)) == STATE_DONE) { /* the tuple begins anew */
		forget(&p->key, at);
		return NEXT;
	}
	u32 fit = weigh(s, p, at->side);
	if (translate(skb, s, p, at->side) || fit == BEYOND)
		return DROP;
	return pass(skb, s, p, at, fit);
}

/* claim has the session leave user space with this packet if it can, and reports whether it is in the lane. */
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

/* up lets a packet that is noted go up to the socket, unless the lane has the session meanwhile. */
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
	return DROP; /* as a queue that is full: the endpoint sends it again */
}

/* too_big passes an error on to the endpoint whose packet it is about, if that can be. All others pass. */
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
	struct half *h = at.side ? &s->half[0] : &s->half[1], *o = at.side ? &s->half[1] : &s->half[0]; /* packets of h go to the connection */
	if (!believed(was, v6, h, o))
		return DROP;
	__builtin_memcpy(is, was, sizeof is);
	if (v6 ? write_v6(skb, was, is, h) : write_v4(skb, was, is, h))
		return DROP;
	skb->tc_index = CARRIED;
	return bpf_redirect_neigh(h->device, NULL, 0, 0);
}

/* turned is the tuple of packets the other way. */
static inline_always struct tuple turned(const struct tuple *t)
{
	struct tuple o = {.remote_port = t->local_port, .local_port = t->remote_port};
	__builtin_memcpy(o.remote, t->local, 16);
	__builtin_memcpy(o.local, t->remote, 16);
	return o;
}

/* odd is what becomes of a packet that parse refuses. One of a session that the lane has is lost: there is nothing for it to reach
 * but a listener, and has the session return if it is of big TCP. One that gets it before stays in user space for good, where its next ones arrive. */
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

/* other is what becomes of a packet that arrives and that parse refuses. */
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
			return DROP; /* from elsewhere with addresses of this host, as the kernel drops it (net/ipv4/route.c, martian source) */
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
		return DROP; /* the socket knows nothing of ECN any more: a mark is a loss, as without it (RFC 3168, 5) */
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
	return DROP; /* as a queue that is full: the socket sends it again */
}

/* Whether the kernel knows the flag of bpf_l4_csum_replace that v6_flags is for: it returns 0 if so. */
SEC("tc")
int penstock_probe(struct __sk_buff *skb) { return bpf_l4_csum_replace(skb, ETHER + V6_HEADER + CHECKSUM, 0, 0, PSEUDO_HEADER | 1 << 7) ? 1 : 0; }

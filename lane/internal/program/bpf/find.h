/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* The maps of sessions, and how the session of a packet is found. */
#ifndef FIND_H
#define FIND_H

#include "parse.h"

/* The sizes of the maps are set before loading. */
struct {
	__uint(type, MAP_HASH);
	__uint(max_entries, 2);
	__type(key, struct tuple);
	__type(value, struct place);
} flows SEC(".maps");

struct {
	__uint(type, MAP_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, MAP_MMAPABLE);
	__type(key, u32);
	__type(value, struct session);
} sessions SEC(".maps");

/* A bit for each hash of a remote and a local port. There can be a session only if the bit is set. */
struct {
	__uint(type, MAP_ARRAY);
	__uint(max_entries, 1 << 10);
	__uint(map_flags, MAP_MMAPABLE);
	__type(key, u32);
	__type(value, u64);
} ports SEC(".maps");

/* For each hash that only one tuple has, the place of the tuple's session: twice the slot, plus the side, plus 1. It
 * saves looking in the table. 0 means that the table must be asked. A place is set after the tuple can be found in the
 * table, and cleared before the tuple is removed from there. */
struct {
	__uint(type, MAP_ARRAY);
	__uint(max_entries, (1 << 16) / ROW);
	__uint(map_flags, MAP_MMAPABLE);
	__type(key, u32);
	__type(value, struct row);
} places SEC(".maps");

/* hash is the hash of a tuple, by its ports. The other direction has another hash, so a packet that an endpoint of this
 * host sends has no session when it leaves. */
static inline_always u32 hash(u16 remote, u16 local) { return (u16)(remote * 0x9e37u + local); }

/* of_none reports whether a packet is a TCP segment without a session, as most packets are. It reads no more than the
 * ports, and only if the first bytes are at hand. It returns false if it does not know. */
static inline_always bool of_none(struct __sk_buff *skb, bool arrives)
{
	u8 *b = (u8 *)(long)skb->data, *end = (u8 *)(long)skb->data_end;
	if (skb->vlan_present || b + ETHER + V4_HEADER + 4 > end)
		return false;
	b += ETHER;
	if (skb->protocol == to_net16(0x0800)) {
		if (b[0] != 0x45 || b[9] != TCP || ((b[6] << 8 | b[7]) & 0x1fff))
			return false;
		b += V4_HEADER;
	} else if (skb->protocol == to_net16(0x86dd)) {
		if (b[6] != TCP || b + V6_HEADER + 4 > end)
			return false;
		b += V6_HEADER;
	} else {
		return false;
	}
	u16 from = *(u16 *)b, to = *(u16 *)(b + 2);
	u32 bit = arrives ? hash(from, to) : hash(to, from), word = bit >> 6;
	u64 *bits = bpf_map_lookup_elem(&ports, &word);
	return bits && !(*bits >> (bit & 63) & 1);
}

static inline_always u32 *place_of(const struct tuple *key)
{
	u32 at = hash(key->remote_port, key->local_port), row = at / ROW;
	struct row *r = bpf_map_lookup_elem(&places, &row);
	return r ? &r->place[at % ROW] : NULL;
}

static inline_always bool same(const struct tuple *a, const struct tuple *b)
{
	u32 differ = (a->remote_port ^ b->remote_port) | (a->local_port ^ b->local_port);
	for (int i = 0; i < 4; i++)
		differ |= (a->remote[i] ^ b->remote[i]) | (a->local[i] ^ b->local[i]);
	return !differ;
}

/* find returns the session of a tuple. Slots are used again, so the generation or the tuple must fit. */
static inline_always struct session *find(const struct tuple *key, struct place *at)
{
	u32 *known = place_of(key), place = known ? *(volatile u32 *)known : 0;
	if (place) {
		at->slot = (place - 1) >> 1;
		at->side = (place - 1) & 1;
		struct session *s = bpf_map_lookup_elem(&sessions, &at->slot);
		if (s && same(at->side ? &s->half[1].in : &s->half[0].in, key))
			return s;
	}
	struct place *found = bpf_map_lookup_elem(&flows, key);
	if (!found)
		return NULL;
	*at = *found;
	struct session *s = bpf_map_lookup_elem(&sessions, &at->slot);
	return s && s->generation == at->generation ? s : NULL;
}

/* forget removes the tuple of a session. */
static inline_always void forget(const struct tuple *key, const struct place *at)
{
	u32 *known = place_of(key);
	if (known)
		__sync_val_compare_and_swap(known, 1 + (at->slot << 1 | (at->side & 1)), 0);
	bpf_map_delete_elem(&flows, key);
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* Packets: found, read, and translated. The oracle is lane/internal/translate. */
#ifndef PARSE_H
#define PARSE_H

#include "session.h"

/* Set before loading: flags of bpf_l4_csum_replace for IPv6 (BPF_F_IPV6, Linux 6.16). */
const volatile u64 v6_flags;

static inline_always u32 tcp_at(const struct packet *p) { return ETHER + (p->v6 ? V6_HEADER : V4_HEADER); }

/* mapped makes an IPv4 address one of IPv6. */
static inline_always void mapped(u32 *to, u32 address)
{
	to[0] = to[1] = 0;
	to[2] = to_net32(0xffff);
	to[3] = address;
}

/* parse_v4 and parse_v6 return the length of the TCP segment, 0 for a packet that has none. */
static inline_always u32 parse_v4(struct __sk_buff *skb, struct packet *p)
{
	u32 w[5];
	if (bpf_skb_load_bytes(skb, ETHER, w, sizeof w))
		return 0;
	u8 *b = (u8 *)w;
	u32 total = b[2] << 8 | b[3];
	if (b[0] != 0x45 || b[9] != TCP || ((b[6] << 8 | b[7]) & 0x3fff) || total < V4_HEADER + TCP_HEADER)
		return 0;
	p->v6 = false;
	p->congested = (b[1] & 3) == 3;
	mapped(p->key.remote, w[3]);
	mapped(p->key.local, w[4]);
	return total - V4_HEADER;
}

static inline_always u32 parse_v6(struct __sk_buff *skb, struct packet *p)
{
	u32 w[10];
	if (bpf_skb_load_bytes(skb, ETHER, w, sizeof w))
		return 0;
	u8 *b = (u8 *)w;
	if (b[0] >> 4 != 6 || b[6] != TCP)
		return 0;
	p->v6 = true;
	p->congested = (b[1] >> 4 & 3) == 3;
	__builtin_memcpy(p->key.remote, w + 2, 16);
	__builtin_memcpy(p->key.local, w + 6, 16);
	return b[4] << 8 | b[5];
}

/* parse reports whether the packet is a TCP segment that the lane could carry, and reads it. */
static inline_always bool parse(struct __sk_buff *skb, struct packet *p)
{
	u32 length, t[5];
	if (skb->vlan_present)
		return false;
	if (skb->protocol == to_net16(0x0800))
		length = parse_v4(skb, p);
	else if (skb->protocol == to_net16(0x86dd))
		length = parse_v6(skb, p);
	else
		return false;
	if (length < TCP_HEADER || bpf_skb_load_bytes(skb, tcp_at(p), t, sizeof t))
		return false;
	u8 *b = (u8 *)t;
	p->header = (b[12] >> 4) * 4;
	if (p->header < TCP_HEADER || p->header > length || tcp_at(p) + p->header > skb->len)
		return false;
	p->key.remote_port = t[0];
	p->key.local_port = t[0] >> 16;
	p->sequence = to_host32(t[1]);
	p->ack = to_host32(t[2]);
	p->flags = b[13];
	p->window = b[14] << 8 | b[15];
	p->length = length - p->header;
	return true;
}

/* A chain is the extension headers of an IPv6 packet, up to TCP. */
struct chain {
	struct __sk_buff *skb;
	u32 at, kind;
};

enum { HOPS = 0, ROUTING = 43, FRAGMENT = 44, AUTHENTICATION = 51, DESTINATION = 60, CHAIN_MOST = 1200 /* of the least length, in a frame of 9,000 bytes */ };

/* extension goes on behind the header at c->at, and returns 1 at one of another kind. */
static long extension(u32 i, struct chain *c)
{
	u8 b[4];
	u32 kind = c->kind, at = c->at;
	if (kind != HOPS && kind != ROUTING && kind != FRAGMENT && kind != AUTHENTICATION && kind != DESTINATION)
		return 1;
	if (bpf_skb_load_bytes(c->skb, at, b, sizeof b) || (kind == FRAGMENT && (b[2] << 8 | b[3]) & 0xfff8)) {
		c->kind = 0;
		return 1;
	}
	c->kind = b[0];
	c->at = at + (kind == FRAGMENT ? 8 : kind == AUTHENTICATION ? 4 * (b[1] + 2) : 8 * (b[1] + 1));
	return 0;
}

/* ports_at returns where the ports are of a packet that parse refuses, and reads its addresses; 0: nowhere. A fragment that is not
 * the first has none, and comes to nothing without the first. */
static inline_always u32 ports_at(struct __sk_buff *skb, struct tuple *key)
{
	u32 w[10];
	u8 *b = (u8 *)w;
	if (skb->protocol == to_net16(0x0800)) {
		if (bpf_skb_load_bytes(skb, ETHER, w, V4_HEADER) || b[0] >> 4 != 4 || b[9] != TCP || ((b[6] << 8 | b[7]) & 0x1fff))
			return 0;
		mapped(key->remote, w[3]);
		mapped(key->local, w[4]);
		return ETHER + (b[0] & 15) * 4;
	}
	if (skb->protocol != to_net16(0x86dd) || bpf_skb_load_bytes(skb, ETHER, w, V6_HEADER))
		return 0;
	__builtin_memcpy(key->remote, w + 2, 16);
	__builtin_memcpy(key->local, w + 6, 16);
	struct chain c = {.skb = skb, .at = ETHER + V6_HEADER, .kind = b[6]};
	if (c.kind != TCP)
		bpf_loop(CHAIN_MOST, extension, &c, 0);
	return c.kind == TCP ? c.at : 0;
}

/* odd_tuple reads the tuple of a TCP packet that parse refuses: with options of IP, extension headers or a header that is cut, or a first fragment. */
static inline_always bool odd_tuple(struct __sk_buff *skb, struct tuple *key)
{
	u32 at = skb->vlan_present ? 0 : ports_at(skb, key), w;
	if (!at || bpf_skb_load_bytes(skb, at, &w, sizeof w))
		return false;
	key->remote_port = w;
	key->local_port = w >> 16;
	return true;
}

/* A walk goes through the options of a TCP header. */
struct walk {
	u32 word[TCP_MOST / 4];
	u32 at, end;
	u32 time, echo, acked;
	u32 acks;
	u32 stamp, answer; /* the last timestamp before it was changed, if stamped, and its echo after */
	u32 stamped;
	u32 numbers; /* that are left of a SACK option, at `at` */
};

/* shift subtracts from a number at any place in the header. */
static inline_always void shift(struct walk *k, u32 at, u32 less)
{
	if (at > TCP_MOST - 4)
		return;
	u8 *b = (u8 *)k->word + at;
	u32 n = ((u32)b[0] << 24 | b[1] << 16 | b[2] << 8 | b[3]) - less;
	b[0] = n >> 24;
	b[1] = n >> 16;
	b[2] = n >> 8;
	b[3] = n;
}

static inline_always u32 number(struct walk *k, u32 at)
{
	if (at > TCP_MOST - 4)
		return 0;
	u8 *b = (u8 *)k->word + at;
	return (u32)b[0] << 24 | b[1] << 16 | b[2] << 8 | b[3];
}

/* option goes on with the option at k->at, or with the next number of a SACK option, and returns 1 after the last one. A loop over those
 * numbers would be most of what the verifier does, which follows each branch of each turn. */
static long option(u32 i, struct walk *k)
{
	u32 at = k->at, end = k->end;
	if (at >= end || at >= TCP_MOST)
		return 1;
	if (k->numbers) {
		shift(k, at, k->acked);
		k->at = at + 4;
		k->numbers--;
		return 0;
	}
	u8 kind = ((u8 *)k->word)[at];
	if (kind == 0)
		return 1;
	if (kind == 1) {
		k->at = at + 1;
		return 0;
	}
	if (at + 1 >= end || at + 1 >= TCP_MOST)
		return 1;
	u32 size = ((u8 *)k->word)[at + 1];
	if (size < 2 || at + size > end)
		return 1;
	if (kind == 8 && size == 10) {
		k->stamp = number(k, at + 2);
		k->stamped = true;
		shift(k, at + 2, -k->time);
		if (k->acks)
			shift(k, at + 6, k->echo);
		k->answer = number(k, at + 6);
	} else if (kind == 5 && size >= 10 && (size - 2) % 8 == 0) {
		k->numbers = (size - 2) / 4;
		k->at = at + 2;
		return 0;
	}
	k->at = at + size;
	return 0;
}

/* options walks all of them. A header of timestamps alone, as Linux sends it, is known. */
static inline_always void options(struct walk *k)
{
	if (k->end == 32 && k->word[5] == to_net32(0x0101080a)) {
		k->stamp = to_host32(k->word[6]);
		k->stamped = true;
		k->word[6] = to_net32(k->stamp + k->time);
		if (k->acks)
			k->word[7] = to_net32(to_host32(k->word[7]) - k->echo);
		k->answer = to_host32(k->word[7]);
		return;
	}
	if (k->end > TCP_HEADER)
		bpf_loop(TCP_MOST - TCP_HEADER, option, k, 0);
}

/* unscaled gives a window in the other connection's unit; one that is not 0 stays so. */
static inline_always u32 unscaled(const struct half *h, u16 window)
{
	u32 w = ((u32)window << (h->scale & 15)) >> (h->unit & 15);
	if (w > 0xffff)
		return 0xffff;
	return w || !window ? w : 1;
}

/* address_v4 and address_v6 give the packet the addresses of the other connection. */
static inline_always long address_v4(struct __sk_buff *skb, const struct tuple *to, bool forwarded)
{
	u32 was[5], is[5];
	if (bpf_skb_load_bytes(skb, ETHER, was, sizeof was))
		return -1;
	__builtin_memcpy(is, was, sizeof is);
	is[3] = to->local[3];
	is[4] = to->remote[3];
	if (forwarded)
		((u8 *)is)[8] = 64;
	s64 addresses = bpf_csum_diff(was + 3, 8, is + 3, 8, 0), all = bpf_csum_diff(was, sizeof was, is, sizeof is, 0);
	if (bpf_l4_csum_replace(skb, ETHER + V4_HEADER + CHECKSUM, 0, addresses, PSEUDO_HEADER))
		return -1;
	if (bpf_skb_store_bytes(skb, ETHER, is, sizeof is, 0))
		return -1;
	return bpf_l3_csum_replace(skb, ETHER + 10, 0, all, 0);
}

static inline_always long address_v6(struct __sk_buff *skb, const struct tuple *to, bool forwarded)
{
	u32 was[8], is[8];
	if (bpf_skb_load_bytes(skb, ETHER + 8, was, sizeof was))
		return -1;
	__builtin_memcpy(is, to->local, 16);
	__builtin_memcpy(is + 4, to->remote, 16);
	s64 addresses = bpf_csum_diff(was, sizeof was, is, sizeof is, 0);
	if (bpf_l4_csum_replace(skb, ETHER + V6_HEADER + CHECKSUM, 0, addresses, PSEUDO_HEADER | v6_flags))
		return -1;
	u8 hops = 64;
	if (forwarded && bpf_skb_store_bytes(skb, ETHER + 7, &hops, 1, 0))
		return -1;
	return bpf_skb_store_bytes(skb, ETHER + 8, is, sizeof is, 0);
}

/* translate makes the packet one of the other connection. After an error it is to be dropped. */
static inline_always long translate(struct __sk_buff *skb, struct packet *p, const struct half *h, const struct half *o, bool forwarded)
{
	struct walk k = {.at = TCP_HEADER, .time = h->time, .echo = o->time, .acked = o->sequence};
	u32 was[TCP_MOST / 4], size = p->header;
	if (size < TCP_HEADER || size > TCP_MOST || bpf_skb_load_bytes(skb, tcp_at(p), k.word, size))
		return -1;
	__builtin_memcpy(was, k.word, sizeof was);
	k.end = size;
	k.acks = p->flags & ACK;
	k.word[0] = o->in.local_port | (u32)o->in.remote_port << 16;
	k.word[1] = to_net32(p->sequence + h->sequence);
	if (k.acks)
		k.word[2] = to_net32(p->ack - o->sequence);
	if (!(p->flags & SYN))
		k.word[3] = (k.word[3] & 0xffff) | (u32)to_net16(unscaled(h, p->window)) << 16;
	options(&k);
	p->time = k.stamp;
	p->echo = k.answer;
	p->stamped = k.stamped;
	asm volatile("" : "+r"(size)); /* or the compiler leaves out the bounds, which the verifier has forgotten */
	if (size < TCP_HEADER || size > TCP_MOST)
		return -1;
	s64 header = bpf_csum_diff(was, size, k.word, size, 0);
	if (bpf_skb_store_bytes(skb, tcp_at(p), k.word, size, 0) || bpf_l4_csum_replace(skb, tcp_at(p) + CHECKSUM, 0, header, 0))
		return -1;
	return p->v6 ? address_v6(skb, &o->in, forwarded) : address_v4(skb, &o->in, forwarded);
}

/* store32 and store16 change a field of the header, and return whether they have failed. */
static inline_always int store32(struct __sk_buff *skb, const struct packet *p, u32 field, u32 from, u32 to)
{
	u32 at = tcp_at(p), was = to_net32(from), is = to_net32(to);
	return bpf_skb_store_bytes(skb, at + field, &is, sizeof is, 0) || bpf_l4_csum_replace(skb, at + CHECKSUM, was, is, sizeof is);
}

static inline_always int store16(struct __sk_buff *skb, const struct packet *p, u32 field, u16 from, u16 to)
{
	u32 at = tcp_at(p);
	u16 was = to_net16(from), is = to_net16(to);
	return bpf_skb_store_bytes(skb, at + field, &is, sizeof is, 0) || bpf_l4_csum_replace(skb, at + CHECKSUM, was, is, sizeof is);
}

#endif

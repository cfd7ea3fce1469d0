/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* How packets are read and translated. The oracle is lane/internal/translate. */
#ifndef PARSE_H
#define PARSE_H

#include "session.h"

/* Set before loading: flags of bpf_l4_csum_replace for IPv6 (BPF_F_IPV6, Linux 6.16). */
const volatile u64 v6_flags;

static inline_always u32 tcp_at(const struct packet *p) { return ETHER + (p->v6 ? V6_HEADER : V4_HEADER); }

/* is_mapped reports whether an address in an IPv6 header is an IPv4 address. The kernel drops such packets
 * (net/ipv6/ip6_input.c, ip6_rcv_core). They have no session, because their tuple belongs to an IPv4 session. */
static inline_always bool is_mapped(const u32 *a) { return !(a[0] | a[1]) && a[2] == to_net32(0xffff); }

/* mapped maps an IPv4 address into IPv6. */
static inline_always void mapped(u32 *to, u32 address)
{
	to[0] = to[1] = 0;
	to[2] = to_net32(0xffff);
	to[3] = address;
}

/* read copies bytes of a packet, a multiple of four, and returns whether that failed. Headers are usually at hand, and
 * then need no helper. */
static inline_always long read(struct __sk_buff *skb, u32 at, u32 *to, u32 size)
{
	u8 *from = (u8 *)(long)skb->data + at;
	if (from + size > (u8 *)(long)skb->data_end)
		return bpf_skb_load_bytes(skb, at, to, size);
	for (u32 i = 0; i < size / 4; i++)
		to[i] = ((u32 *)from)[i];
	return 0;
}

/* parse_tcp reads the words of a TCP header, in a segment of that length. It returns false if they are no TCP header. */
static inline_always bool parse_tcp(struct __sk_buff *skb, struct packet *p, const u32 *t, u32 length)
{
	const u8 *b = (const u8 *)t;
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

static inline_always bool parse_v4(struct __sk_buff *skb, struct packet *p, u32 *w)
{
	if (read(skb, ETHER, w, V4_HEADER + TCP_HEADER))
		return false;
	u8 *b = (u8 *)w;
	u32 total = b[2] << 8 | b[3];
	if (b[0] != 0x45 || b[9] != TCP || ((b[6] << 8 | b[7]) & 0x3fff) || total < V4_HEADER + TCP_HEADER)
		return false;
	p->v6 = false;
	p->congested = (b[1] & 3) == 3;
	mapped(p->key.remote, w[3]);
	mapped(p->key.local, w[4]);
	return parse_tcp(skb, p, w + V4_HEADER / 4, total - V4_HEADER);
}

static inline_always bool parse_v6(struct __sk_buff *skb, struct packet *p, u32 *w)
{
	if (read(skb, ETHER, w, V6_HEADER + TCP_HEADER))
		return false;
	u8 *b = (u8 *)w;
	if (b[0] >> 4 != 6 || b[6] != TCP || is_mapped(w + 2))
		return false;
	p->v6 = true;
	p->congested = (b[1] >> 4 & 3) == 3;
	__builtin_memcpy(p->key.remote, w + 2, 16);
	__builtin_memcpy(p->key.local, w + 6, 16);
	return parse_tcp(skb, p, w + V6_HEADER / 4, b[4] << 8 | b[5]);
}

/* parse reports whether the packet is a TCP segment that the lane could carry, and reads it. */
static inline_always bool parse(struct __sk_buff *skb, struct packet *p)
{
	u32 w[(V6_HEADER + TCP_HEADER) / 4];
	if (skb->vlan_present)
		return false;
	if (skb->protocol == to_net16(0x0800))
		return parse_v4(skb, p, w);
	return skb->protocol == to_net16(0x86dd) && parse_v6(skb, p, w);
}

/* A chain is the extension headers of an IPv6 packet, up to TCP. */
struct chain {
	struct __sk_buff *skb;
	u32 at, kind;
};

enum { HOPS = 0, ROUTING = 43, FRAGMENT = 44, AUTHENTICATION = 51, DESTINATION = 60, CHAIN_MOST = 1200 /* of the least length, in a frame of 9,000 bytes */ };

/* extension skips the extension header at c->at. It returns 1 at a header of another kind. */
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

/* ports_at reads the addresses of a packet that parse refuses, and returns where its ports are, or 0. A fragment that is
 * not the first has no ports, and is useless without the first. */
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
	if (skb->protocol != to_net16(0x86dd) || bpf_skb_load_bytes(skb, ETHER, w, V6_HEADER) || is_mapped(w + 2))
		return 0;
	__builtin_memcpy(key->remote, w + 2, 16);
	__builtin_memcpy(key->local, w + 6, 16);
	struct chain c = {.skb = skb, .at = ETHER + V6_HEADER, .kind = b[6]};
	if (c.kind != TCP)
		bpf_loop(CHAIN_MOST, extension, &c, 0);
	return c.kind == TCP ? c.at : 0;
}

/* odd_tuple reads the tuple of a TCP packet that parse refuses: because it has IP options, extension headers or a header
 * that is cut, or is a first fragment. */
static inline_always bool odd_tuple(struct __sk_buff *skb, struct tuple *key)
{
	u32 at = skb->vlan_present ? 0 : ports_at(skb, key), w;
	if (!at || bpf_skb_load_bytes(skb, at, &w, sizeof w))
		return false;
	key->remote_port = w;
	key->local_port = w >> 16;
	return true;
}

enum { STAMPED_HEADER = 32 }; /* the size of a TCP header with only timestamps, as Linux sends it */

/* A walk goes through the options of a TCP header. */
struct walk {
	u32 ip[V6_HEADER / 4]; /* the IP header, right before the TCP header; an IPv4 header is at IP_V4 */
	u32 word[TCP_MOST / 4];
	u64 sum; /* what was added to the TCP header, in words, for its checksum */
	u32 at, end;
	u32 time, echo, acked;
	u32 acks;
	u32 stamp, answer; /* if stamped: the last timestamp before it was changed, and its echo after */
	u32 stamped;
	u32 numbers; /* how many numbers of a SACK option are left, at `at` */
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

/* option handles the option at k->at, or the next number of a SACK option, and returns 1 after the last one. With a loop
 * over these numbers, most of the verifier's work would be this loop: it follows each branch of each turn. */
static long option(u32 i, struct walk **walk)
{
	struct walk *k = *walk;
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

/* put changes a word of the TCP header. */
static inline_always void put(struct walk *k, u32 at, u32 is)
{
	k->sum += (u64)(u32)~k->word[at] + is;
	k->word[at] = is;
}

/* folded returns a sum in 16 bits, with the carries added. */
static inline_always u32 folded(u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* walk_options translates all options, and adds the changes to the sum. */
global int walk_options(struct walk *k)
{
	if (!k)
		return 0;
	u32 size = k->end - TCP_HEADER;
	if (size == 0 || size > TCP_MOST - TCP_HEADER)
		return 0;
	u64 was = bpf_csum_diff(NULL, 0, k->word + TCP_HEADER / 4, size, 0);
	bpf_loop(TCP_MOST - TCP_HEADER, option, &k, 0);
	asm volatile("" : "+r"(size)); /* otherwise the compiler leaves out the check of the bounds, which the verifier needs */
	if (size <= TCP_MOST - TCP_HEADER)
		k->sum += (u64)(u32)~was + (u32)bpf_csum_diff(NULL, 0, k->word + TCP_HEADER / 4, size, 0);
	return 0;
}

/* options translates the options. It has a short way for a header with only timestamps. */
static inline_always void options(struct walk *k)
{
	if (k->end != STAMPED_HEADER || k->word[5] != to_net32(0x0101080a)) {
		walk_options(k);
		return;
	}
	k->stamp = to_host32(k->word[6]);
	k->stamped = true;
	put(k, 6, to_net32(k->stamp + k->time));
	if (k->acks)
		put(k, 7, to_net32(to_host32(k->word[7]) - k->echo));
	k->answer = to_host32(k->word[7]);
}

/* unscaled converts a window to the other connection's unit. Only a window of 0 becomes 0. */
static inline_always u32 unscaled(const struct half *h, u16 window)
{
	u32 w = ((u32)window << (h->scale & 15)) >> (h->unit & 15);
	if (w > 0xffff)
		return 0xffff;
	return w || !window ? w : 1;
}

enum { IP_V4 = (V6_HEADER - V4_HEADER) / 4 };

/* address_v4 and address_v6 write the addresses of the other connection into the IP header, and return what that adds to
 * the checksums. */
static inline_always u64 address_v4(u32 *w, const struct tuple *to, bool forwarded)
{
	u64 sum = (u64)(u32)~w[3] + to->local[3] + (u32)~w[4] + to->remote[3];
	u32 checked = w[2] & 0xffff, hops = forwarded ? (checked & 0xff00) | 64 : checked;
	w[2] = hops | (~folded(sum + (~w[2] >> 16) + (~checked & 0xffff) + hops) << 16);
	w[3] = to->local[3];
	w[4] = to->remote[3];
	return sum;
}

static inline_always u64 address_v6(u32 *w, const struct tuple *to, bool forwarded)
{
	u64 sum = 0;
	for (int i = 0; i < 4; i++) {
		sum += (u64)(u32)~w[2 + i] + to->local[i] + (u32)~w[6 + i] + to->remote[i];
		w[2 + i] = to->local[i];
		w[6 + i] = to->remote[i];
	}
	if (forwarded)
		((u8 *)w)[7] = 64;
	return sum;
}

/* summed returns the state of the packet's checksum (include/linux/skbuff.h, "Checksumming of received packets by
 * device"). */
static inline_always u32 summed(struct __sk_buff *skb)
{
	struct sk_buff *kernels = bpf_cast_to_kern_ctx(skb);
	u64 byte = *(u8 *)((void *)kernels + __builtin_preserve_field_info(kernels->ip_summed, 0));
	byte <<= __builtin_preserve_field_info(kernels->ip_summed, 4);
	return byte >> __builtin_preserve_field_info(kernels->ip_summed, 5);
}

/* write writes both headers, with the right TCP checksum. */
static inline_always long write(struct __sk_buff *skb, struct walk *k, u32 size, const struct tuple *to, bool v6, bool forwarded)
{
	u32 *ip = v6 ? k->ip : k->ip + IP_V4, length = v6 ? V6_HEADER : V4_HEADER;
	if (read(skb, ETHER, ip, length))
		return -1;
	u32 hops = ip[1];
	u64 addresses = v6 ? address_v6(ip, to, forwarded) : address_v4(ip, to, forwarded);
	u32 how = summed(skb), sum = k->word[CHECKSUM / 4] & 0xffff;
	if (how == CHECKSUM_PARTIAL) /* the checksum covers only the addresses, and is not complemented */
		sum = folded(sum + addresses);
	else if (how != CHECKSUM_COMPLETE)
		sum = ~folded((~sum & 0xffff) + k->sum + addresses);
	k->word[CHECKSUM / 4] = (k->word[CHECKSUM / 4] & 0xffff0000) | (sum & 0xffff);
	asm volatile("" : "+r"(size)); /* otherwise the compiler leaves out the check of the bounds, which the verifier needs */
	if (size < TCP_HEADER || size > TCP_MOST || bpf_skb_store_bytes(skb, ETHER, ip, length + size, 0))
		return -1;
	if (how != CHECKSUM_COMPLETE)
		return 0;
	if (v6) /* the header has no checksum that would balance this change */
		bpf_csum_update(skb, folded((u64)(u32)~hops + ip[1]));
	if (bpf_l4_csum_replace(skb, ETHER + length + CHECKSUM, 0, folded(k->sum), 0))
		return -1;
	return bpf_l4_csum_replace(skb, ETHER + length + CHECKSUM, 0, folded(addresses), PSEUDO_HEADER | (v6 ? v6_flags : 0));
}

/* translate turns a packet of side `side` into a packet of the other connection. After an error the packet must be
 * dropped. It is not a part of pass because of the size of its stack. */
global int translate(struct __sk_buff *skb, struct session *s, struct packet *p, u32 side)
{
	if (!s || !p)
		return -1;
	const struct half *h = side ? &s->half[1] : &s->half[0], *o = side ? &s->half[0] : &s->half[1];
	bool forwarded = !s->looped;
	struct walk k = {.at = TCP_HEADER, .time = h->time, .echo = o->time, .acked = o->sequence};
	u32 size = p->header;
	if (size < TCP_HEADER || size > TCP_MOST)
		return -1;
	if (size == STAMPED_HEADER ? read(skb, tcp_at(p), k.word, STAMPED_HEADER) : bpf_skb_load_bytes(skb, tcp_at(p), k.word, size))
		return -1;
	k.end = size;
	k.acks = p->flags & ACK;
	put(&k, 0, o->in.local_port | (u32)o->in.remote_port << 16);
	put(&k, 1, to_net32(p->sequence + h->sequence));
	if (k.acks)
		put(&k, 2, to_net32(p->ack - o->sequence));
	if (!(p->flags & SYN))
		put(&k, 3, (k.word[3] & 0xffff) | (u32)to_net16(unscaled(h, p->window)) << 16);
	options(&k);
	p->time = k.stamp;
	p->echo = k.answer;
	p->stamped = k.stamped;
	return p->v6 ? write(skb, &k, size, &o->in, true, forwarded) : write(skb, &k, size, &o->in, false, forwarded);
}

/* store32 and store16 change a field of the header, and return whether that failed. */
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

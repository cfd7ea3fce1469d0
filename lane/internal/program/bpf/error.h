/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* Errors of routers: a packet that the lane has sent on was too big. The endpoint that has sent the packet gets the
 * error, which quotes the packet as it was. The oracle is translate.Side.TooBig. */
#ifndef ERROR_H
#define ERROR_H

#include "parse.h"

enum { ICMP = 1, ICMP6 = 58, ICMP_HEADER = 8, QUOTED = 8 };
enum { V4_ERROR = V4_HEADER + ICMP_HEADER + V4_HEADER + QUOTED, V6_ERROR = V6_HEADER + ICMP_HEADER + V6_HEADER + QUOTED };

/* The smallest MTU that is passed on, for IPv4 and IPv6. An endpoint applies it to all packets to an address, and all
 * its sessions have the proxy's address. */
enum { LEAST_MTU = 1280 };

/* believed reports whether an error can come from the path of the session: it must be about a segment on the way from
 * the endpoint of h to the endpoint of o, and the segment must be larger than its MTU. */
static inline_always bool believed(const u32 *w, bool v6, struct half *h, struct half *o)
{
	u32 number = to_host32(v6 ? w[23] : w[13]) - h->sequence, headers = v6 ? V6_HEADER + TCP_HEADER : V4_HEADER + TCP_HEADER;
	u32 mtu = v6 ? to_host32(w[11]) : to_host32(w[6]) & 0xffff;
	s64 acked = load(&o->acked), sent = load(&h->sent), at = (s64)sent + (s32)(number - (h->first + (u32)sent));
	return at >= acked && at < sent && mtu >= LEAST_MTU && mtu < h->gives + headers;
}

/* read_v4 and read_v6 read an error, and the tuple of the connection on which the quoted packet was sent. It is the
 * tuple of packets that arrive on this connection. */
static inline_always bool read_v4(struct __sk_buff *skb, u32 *w, struct tuple *key)
{
	u8 *b = (u8 *)w;
	if (bpf_skb_load_bytes(skb, ETHER, w, V4_ERROR) || b[0] != 0x45 || b[9] != ICMP)
		return false;
	if (b[20] != 3 || b[21] != 4 || b[28] != 0x45 || b[37] != TCP) /* fragmentation needed */
		return false;
	mapped(key->local, w[10]);
	mapped(key->remote, w[11]);
	key->local_port = w[12];
	key->remote_port = w[12] >> 16;
	return true;
}

static inline_always bool read_v6(struct __sk_buff *skb, u32 *w, struct tuple *key)
{
	u8 *b = (u8 *)w;
	if (bpf_skb_load_bytes(skb, ETHER, w, V6_ERROR) || b[6] != ICMP6 || b[40] != 2 || b[48] >> 4 != 6 || b[54] != TCP || is_mapped(w + 18))
		return false; /* packet too big */
	__builtin_memcpy(key->local, w + 14, 16);
	__builtin_memcpy(key->remote, w + 18, 16);
	key->local_port = w[22];
	key->remote_port = w[22] >> 16;
	return true;
}

/* write_v4 and write_v6 make the error one for the endpoint of side h, which has sent the packet. */
static inline_always long write_v4(struct __sk_buff *skb, u32 *was, u32 *is, const struct half *h)
{
	u8 *b = (u8 *)is;
	b[8] = 64;
	is[3] = h->in.local[3];
	is[4] = h->in.remote[3];
	is[10] = h->in.remote[3];
	is[11] = h->in.local[3];
	is[12] = h->in.remote_port | (u32)h->in.local_port << 16;
	is[13] = to_net32(to_host32(is[13]) - h->sequence);
	/* The checksum of the quoted header is the second half of word 9. */
	u32 sum = (~is[9] >> 16) + (~was[10] & 0xffff) + (~was[10] >> 16 & 0xffff) + (~was[11] & 0xffff) + (~was[11] >> 16);
	sum += (is[10] & 0xffff) + (is[10] >> 16) + (is[11] & 0xffff) + (is[11] >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	is[9] = (is[9] & 0xffff) | ~sum << 16;
	s64 inner = bpf_csum_diff(was + 7, V4_HEADER + QUOTED, is + 7, V4_HEADER + QUOTED, 0), outer = bpf_csum_diff(was, V4_HEADER, is, V4_HEADER, 0);
	if (bpf_skb_store_bytes(skb, ETHER, is, V4_ERROR, 0) || bpf_l3_csum_replace(skb, ETHER + 10, 0, outer, 0))
		return -1;
	return bpf_l4_csum_replace(skb, ETHER + V4_HEADER + 2, 0, inner, 0);
}

static inline_always long write_v6(struct __sk_buff *skb, u32 *was, u32 *is, const struct half *h)
{
	((u8 *)is)[7] = 64;
	bpf_csum_update(skb, bpf_csum_diff(was + 1, 4, is + 1, 4, 0)); /* the header has no checksum that would balance this change */
	__builtin_memcpy(is + 2, h->in.local, 16);
	__builtin_memcpy(is + 6, h->in.remote, 16);
	__builtin_memcpy(is + 14, h->in.remote, 16);
	__builtin_memcpy(is + 18, h->in.local, 16);
	is[22] = h->in.remote_port | (u32)h->in.local_port << 16;
	is[23] = to_net32(to_host32(is[23]) - h->sequence);
	s64 inner = bpf_csum_diff(was + 12, V6_HEADER + QUOTED, is + 12, V6_HEADER + QUOTED, 0), outer = bpf_csum_diff(was + 2, 32, is + 2, 32, 0);
	if (bpf_skb_store_bytes(skb, ETHER, is, V6_ERROR, 0) || bpf_l4_csum_replace(skb, ETHER + V6_HEADER + 2, 0, inner, 0))
		return -1;
	return bpf_l4_csum_replace(skb, ETHER + V6_HEADER + 2, 0, outer, PSEUDO_HEADER | v6_flags);
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* A bad link: packets that arrive are dropped, doubled, or come again behind those that follow. */
#include "../../internal/program/bpf/kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static u32 (*bpf_get_prandom_u32)(void) = (void *)7;
static long (*bpf_clone_redirect)(struct __sk_buff *skb, u32 device, u64 flags) = (void *)13;

/* Of 10,000 packets. Set before loading. */
const volatile u32 lose, twice, late;

/* Whether segments with RST are left alone. */
const volatile bool spare_resets;

u64 lost, doubled, delayed;

enum { RST = 4, FLAGS = 13 };

/* resets reports whether a packet is a segment with RST, of IPv4 or IPv6 without extension headers. */
static inline_always bool resets(struct __sk_buff *skb)
{
	bool v6 = skb->protocol == to_net16(0x86dd);
	u8 head[V4_HEADER], flags;
	if ((!v6 && skb->protocol != to_net16(0x0800)) || bpf_skb_load_bytes(skb, ETHER, head, sizeof head))
		return false;
	if (head[v6 ? 6 : 9] != TCP)
		return false;
	u32 segment = ETHER + (v6 ? V6_HEADER : (head[0] & 15) * 4);
	return !bpf_skb_load_bytes(skb, segment + FLAGS, &flags, 1) && flags & RST;
}

SEC("tc")
int penstock_lossy(struct __sk_buff *skb)
{
	const u64 ingress = 1;
	u32 n = bpf_get_prandom_u32() % 10000;
	if (n >= lose + twice + late || (spare_resets && resets(skb)))
		return NEXT;
	if (n < lose) {
		__sync_fetch_and_add(&lost, 1);
		return DROP;
	}
	if (n < lose + twice && !bpf_clone_redirect(skb, skb->ifindex, ingress)) {
		__sync_fetch_and_add(&doubled, 1);
		return NEXT;
	}
	if (n >= lose + twice && !bpf_clone_redirect(skb, skb->ifindex, ingress)) {
		__sync_fetch_and_add(&delayed, 1);
		return DROP;
	}
	return NEXT;
}

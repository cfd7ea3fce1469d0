/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* A bad link: packets that arrive are dropped, doubled, or come again behind those that follow. */
#include "../../program/bpf/kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static u32 (*bpf_get_prandom_u32)(void) = (void *)7;
static long (*bpf_clone_redirect)(struct __sk_buff *skb, u32 device, u64 flags) = (void *)13;

/* Of 10,000 packets. Set before loading. */
const volatile u32 lose, twice, late;

u64 lost, doubled, delayed;

SEC("tc")
int penstock_lossy(struct __sk_buff *skb)
{
	const u64 ingress = 1;
	u32 n = bpf_get_prandom_u32() % 10000;
	if (n < lose) {
		__sync_fetch_and_add(&lost, 1);
		return DROP;
	}
	if (n < lose + twice && !bpf_clone_redirect(skb, skb->ifindex, ingress)) {
		__sync_fetch_and_add(&doubled, 1);
		return NEXT;
	}
	if (n >= lose + twice && n < lose + twice + late && !bpf_clone_redirect(skb, skb->ifindex, ingress)) {
		__sync_fetch_and_add(&delayed, 1);
		return DROP;
	}
	return NEXT;
}

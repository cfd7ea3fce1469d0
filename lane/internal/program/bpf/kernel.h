/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* The few kernel types, helpers and constants that lane.c needs. Field offsets are relocated when the programs are
 * loaded (CO-RE). So a struct here has only the fields that are read, in any order. The numbers of helpers, maps and flags
 * come from include/uapi/linux/bpf.h, and never change. */
#ifndef KERNEL_H
#define KERNEL_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;
typedef _Bool bool;

#define SEC(name) __attribute__((section(name), used))
#define inline_always inline __attribute__((always_inline))
#define never_inline __attribute__((noinline))
/* A global function is verified once and alone, for any arguments: pointers may be NULL. A static function is verified
 * again for each state in which it is called, which is most of the time that loading the programs takes. */
#define global __attribute__((noinline))
#define __uint(name, val) int(*name)[val]
#define __type(name, val) typeof(val) *name
#define NULL ((void *)0)
#define true 1
#define false 0

enum { MAP_HASH = 1, MAP_ARRAY = 2, MAP_RINGBUF = 27 };
enum { MAP_MMAPABLE = 1 << 10 };
enum { CARRIED = 0x4c4e }; /* skb->tc_index of packets that the lane forwards */
enum { NEXT = -1, DROP = 2 }; /* enum tcx_action_base */
enum { ETHER = 14, V4_HEADER = 20, V6_HEADER = 40, TCP = 6, TCP_HEADER = 20, TCP_MOST = 60, SEQUENCE = 4, ACKNOWLEDGEMENT = 8, WINDOW = 14, CHECKSUM = 16 };
enum { CURRENT_NETNS = -1, PSEUDO_HEADER = 1 << 4 };
enum { ESTABLISHED = 1 };
enum { CHECKSUM_NONE, CHECKSUM_UNNECESSARY, CHECKSUM_COMPLETE, CHECKSUM_PARTIAL }; /* include/linux/skbuff.h */
enum { ECN_OK = 1, ECN_ACCURATE = 1 << 4, ECN_PENDING = 6, SACK_SEEN = 1 }; /* include/net/tcp.h */

struct __sk_buff {
	u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority, ingress_ifindex, ifindex, tc_index, cb[5], hash, tc_classid, data, data_end;
	/* and more, which is not read */
};

struct tuple4 {
	u32 source, destination;
	u16 source_port, destination_port;
};

struct tuple6 {
	u32 source[4], destination[4];
	u16 source_port, destination_port;
};

struct sock;
struct sk_buff;
struct tcp_sock;

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static long (*bpf_skb_store_bytes)(struct __sk_buff *skb, u32 at, const void *from, u32 size, u64 flags) = (void *)9;
static long (*bpf_l3_csum_replace)(struct __sk_buff *skb, u32 at, u64 from, u64 to, u64 size) = (void *)10;
static long (*bpf_l4_csum_replace)(struct __sk_buff *skb, u32 at, u64 from, u64 to, u64 flags) = (void *)11;
static long (*bpf_skb_load_bytes)(const struct __sk_buff *skb, u32 at, void *to, u32 size) = (void *)26;
static s64 (*bpf_csum_diff)(const void *from, u32 from_size, const void *to, u32 to_size, u32 seed) = (void *)28;
static s64 (*bpf_csum_update)(struct __sk_buff *skb, u32 more) = (void *)40;
static long (*bpf_sk_release)(void *sock) = (void *)86;
static void *(*bpf_skc_lookup_tcp)(void *ctx, void *tuple, u32 size, u64 netns, u64 flags) = (void *)99;
static long (*bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static long (*bpf_ringbuf_output)(void *ring, void *data, u64 size, u64 flags) = (void *)130;
static struct tcp_sock *(*bpf_skc_to_tcp_sock)(void *sock) = (void *)137;
static long (*bpf_redirect_neigh)(u32 device, void *params, int size, u64 flags) = (void *)152;
static long (*bpf_loop)(u32 times, void *callback, void *ctx, u64 flags) = (void *)181;

/* A kernel function: it returns the kernel's own struct of a packet (kernel/bpf/helpers.c). */
extern void *bpf_cast_to_kern_ctx(void *skb) __attribute__((section(".ksyms")));

#define to_host16(x) __builtin_bswap16(x)
#define to_host32(x) __builtin_bswap32(x)
#define to_net16(x) __builtin_bswap16(x)
#define to_net32(x) __builtin_bswap32(x)

#define field_exists(field) __builtin_preserve_field_info(field, 2)

/* bit_field reads a bit field of a kernel object. The builtins return the field's offset, size and shifts. */
#define bit_field(object, field) ({ \
	u64 _v = 0; \
	u32 _size = __builtin_preserve_field_info((object)->field, 1); \
	bpf_probe_read_kernel(&_v, _size > 8 ? 8 : _size, (void *)(object) + __builtin_preserve_field_info((object)->field, 0)); \
	_v <<= __builtin_preserve_field_info((object)->field, 4); \
	_v >> __builtin_preserve_field_info((object)->field, 5); \
})

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sock_common {
	unsigned char skc_state;
};

struct sk_buff {
	u8 ip_summed : 2;
};

struct net_device {
	s32 ifindex;
};

struct dst_entry {
	struct net_device *dev;
	void *xfrm, *lwtstate;
};

struct sock {
	struct sock_common __sk_common;
	struct {
		struct sk_buff *tail;
	} sk_backlog;
	u32 sk_gso_max_size, sk_mark;
	struct dst_entry *sk_dst_cache;
};

struct inet_sock {
	struct sock sk;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	u32 icsk_pmtu_cookie;
	const void *icsk_ulp_ops;
};

struct tcp_options_received {
	u32 ts_recent;
	u16 tstamp_ok : 1, wscale_ok : 1, sack_ok : 3, snd_wscale : 4, rcv_wscale : 4;
	u16 mss_clamp;
};

struct rb_root {
	void *rb_node;
};

struct minmax_sample {
	u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u32 rcv_nxt, copied_seq, write_seq, snd_nxt, snd_una, snd_wnd, rcv_wnd, rcv_wup, tsoffset;
	u16 advmss, urg_data;
	u8 ecn_flags;
	u8 repair : 1, tcp_usec_ts : 1;
	bool is_mptcp;
	struct rb_root out_of_order_queue;
	struct minmax rtt_min;
	struct tcp_options_received rx_opt;
	void *md5sig_info, *ao_info;
};

#pragma clang attribute pop

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* The few kernel types, helpers and constants that trace.c needs. Field offsets are
 * relocated when the programs are loaded (CO-RE), so a struct here has only the fields
 * that are read, in any order. Numbers of helpers and map types are those of
 * include/uapi/linux/bpf.h, which never change. */
#ifndef KERNEL_H
#define KERNEL_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef _Bool bool;

#define SEC(name) __attribute__((section(name), used))
#define inline_always inline __attribute__((always_inline))
#define __uint(name, val) int(*name)[val]
#define __type(name, val) typeof(val) *name
#define NULL ((void *)0)
#define true 1
#define false 0

enum { MAP_HASH = 1, MAP_ARRAY = 2, MAP_LRU_HASH = 9 };
enum { UPDATE_ANY = 0, UPDATE_NOEXIST = 1 };
enum { FAMILY_INET = 2, FAMILY_INET6 = 10, PROTO_TCP = 6 };

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static u64 (*bpf_get_current_pid_tgid)(void) = (void *)14;
static long (*bpf_get_stackid)(void *ctx, void *map, u64 flags) = (void *)27;
static long (*bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static u64 (*bpf_jiffies64)(void) = (void *)118;

#define field_exists(field) __builtin_preserve_field_info(field, 2)

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	u32 inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct in6_addr {
	union {
		u32 u6_addr32[4];
	} in6_u;
};

struct sock_common {
	u32 skc_daddr;
	u32 skc_rcv_saddr;
	u16 skc_dport;
	u16 skc_num;
	u16 skc_family;
	u8 skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct kernfs_node {
	u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct sock_cgroup_data {
	struct cgroup *cgroup;
};

struct sock {
	struct sock_common __sk_common;
	u16 sk_protocol;
	struct sock_cgroup_data sk_cgrp_data;
};

struct request_sock {
	struct sock_common __req_common;
};

struct inet_sock {
	u16 inet_sport;
};

struct inet_connection_sock {
	u32 icsk_rto;
	u8 icsk_ca_state : 5;
};

struct tcp_sock {
	u32 srtt_us;
	u32 retrans_out;
};

struct Qdisc {
	void *enqueue;
};

struct net_device {
	s32 ifindex;
	struct Qdisc *qdisc;
	possible_net_t nd_net;
};

struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	u8 *head;
	u16 protocol;
	u16 network_header;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct task_struct {
	u32 __state;
	s32 pid;
	s32 tgid;
	struct css_set *cgroups;
};

#pragma clang attribute pop

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* The memory that the programs share with user space, and what they read from a packet. */
#ifndef SESSION_H
#define SESSION_H

#include "kernel.h"
#include "state.h"

/* A tuple has the addresses of a packet that arrives from an endpoint. An IPv4 address is mapped into IPv6. Ports are in
 * network byte order. */
struct tuple {
	u32 remote[4], local[4];
	u16 remote_port, local_port;
};

/* A place says where the session of a tuple is. */
struct place {
	u32 slot;
	u32 generation;
	u32 side;
};

/* A row has the places of as many hashes as fit into a cache line. */
enum { ROW = 16 };

struct row {
	u32 place[ROW];
};

/* Flags of half.noted, above the number. */
#define NOTED (1ULL << 32)
#define NOTED_RESET (1ULL << 33)
#define NOTED_LOST (1ULL << 34) /* a packet could not be noted: the session stays in user space until this is forgotten */
#define NOTED_BIG (1ULL << 35)  /* a packet was above 64 KiB (big TCP): the session never leaves again */

/* What an endpoint knows that its socket, which was made again, does not. */
enum behind {
	LAGS = 1,     /* the endpoint may have bytes up to reach that the socket has not sent */
	OWES_END = 2, /* the endpoint has ended in the lane */
};

/* The time of a session is counted in ticks of 2^17 ns. Each tick counts once, for one side and for one of these waits: */
enum wait {
	WAIT_ANSWER, /* for data of this side, after data of the other side */
	WAIT_MORE,   /* for data of this side, after earlier data of its own */
	WAIT_WINDOW, /* for its window, which had room for less than a segment */
	WAIT_ACK,    /* for its acknowledgement, after which the other side went on at once */
	WAIT_FLIGHT, /* for data of the other side, while more than a segment is on the way to this side */
	WAIT_GAP,    /* for data of this side that is missing here */
	WAIT_AGAIN,  /* for the other side to send again, and then for the acknowledgement of this side */
	WAITS,
};

enum { ORDINARY = 1460 }; /* bytes of a segment of Ethernet */

enum { LATE = 1 << 20 };

enum { TICK = 17, QUIET = 2000000000 >> TICK, AT_ONCE = 8, NARROW = 3 };

/* A half describes the packets that arrive from one endpoint. Positions count from the moment at which the session left
 * user space, see lane/internal/translate. */
struct half {
	u64 noted; /* the end of the data that went up to the socket */
	u64 sent, acked, edge, fin;
	u64 packets;
	u64 asked, nudged; /* ktime of the packet of this side, with data and without, for whose echo the lane waits, or 0 */
	u64 payload; /* bytes of data, including repeated bytes */
	u64 hole; /* set when a packet comes behind a gap: the position after the first byte that was missing; 0: none was */
	u32 first, first_ack;
	u32 sequence, time; /* added to sequence numbers and timestamps */
	u32 device;         /* where packets of this side arrive, and where packets to it leave */
	u32 stamp, asked_stamp, nudged_stamp; /* the highest timestamp, and the timestamps of the packets of asked and nudged */
	u32 window;             /* the last window, in bytes */
	u32 zeros, repeats;     /* how often the window became 0, and how many segments came again */
	u32 reach;              /* if behind: the number after everything that the lane has carried to the endpoint */
	u32 rtt, least_rtt;     /* the round trip to the endpoint, in us, plus 1; 0: not known */
	u32 data_rtt;           /* the same until the endpoint sends data, so it includes the endpoint's own pauses */
	u32 segments;           /* packets with data */
	u32 behind_gap, lost;   /* segments that came behind a gap, and segments that came again although none was missing here */
	u32 answers, pauses;    /* how many waits were WAIT_ANSWER, and how many WAIT_MORE */
	u32 waits[WAITS];       /* by enum wait, in ticks */
	u32 widest, narrow;     /* the largest window so far, in bytes, and the ticks in which too little of it was left (wait.h) */
	struct tuple in;
	u16 takes, gives; /* the largest segment that the endpoint accepts, and the largest that it may send */
	u8 scale, unit;   /* the shifts of windows that arrive, and of windows that leave to the other side */
	u8 timestamps, v6, sack;
	u8 ecn;      /* both ends of the connection have agreed on ECN */
	u8 restored; /* the socket was made again */
	u8 behind;   /* enum behind */
	u32 resent;  /* segments that came again with the first byte that is not acknowledged */
};

enum why {
	WHY_NONE,
	WHY_NO_SOCKET,
	WHY_NOT_ESTABLISHED,
	WHY_UNREAD,
	WHY_OUT_OF_ORDER,
	WHY_NOT_NEXT,
	WHY_UNACKNOWLEDGED,
	WHY_IN_FLIGHT,
	WHY_RESET,
	WHY_TIMESTAMPS,
	WHY_MICROSECONDS,
	WHY_MSS,
	WHY_PATH_MTU,
	WHY_ECN,
	WHY_MPTCP,
	WHY_SIGNED,
	WHY_URGENT,
	WHY_ULP,
	WHY_BIG_TCP,
	WHY_DEVICE,
	WHY_ROUTE,
	WHY_TAKEN,
	WHY_COUNT,
};

struct session {
	u64 word; /* the state and the count of its changes */
	u64 last; /* ktime of the last packet in the lane, in ns */
	u64 begun, spent_before; /* ktime at which the session last left user space, and how long it was in the lane before */
	u32 pending, acked; /* the wait that goes on, and its part until the last acknowledgement, in ticks */
	u32 generation;
	enum why why; /* why the last claim was given up */
	u32 tries;
	u8 looped; /* both endpoints are reached over the loopback */
	u8 reset;  /* an RST has passed */
	u8 ends;   /* the owner has stopped the session to reset it */
	u8 spoke;  /* 1 + the side that has sent data last; 0: none has */
	u8 ended_by; /* 1 + the side of the RST that has passed, or else of the first FIN; 0: there was none */
	u8 newest; /* 1 + the side that has sent the last new bytes; 0: none has */
	u8 shut;   /* in user space: a bit for each side whose endpoint sees a window of 0; with both bits, the endpoints see no window beyond held */
	u8 opens;  /* a bit for the side whose socket is sending a probe that announces its window */
	u8 stalled; /* 1 + the side that has sent data again that was not acknowledged since; 0: none has */
	u8 reported; /* only for user space: the session's end was reported */
	u8 unused[2];
	u32 held[2]; /* while both sides are shut: the number up to which the endpoint of a side may send, or 0 if it is not known yet */
	u32 user_timeout; /* only for user space, like keepalive, tag and joined: in ms, plus 1; 0: the session has none of its own */
	u32 keepalive;    /* in the same form */
	struct half half[2];
	u8 tag[80]; /* from its owner, for the next process */
	u64 joined; /* ktime at which the session began, in ns */
};

struct event {
	u32 slot, generation, state, reset;
};

/* A packet has what the programs read from a packet. */
struct packet {
	struct tuple key;
	u64 now; /* ktime at which it is carried */
	u32 sequence, ack, length;
	u32 time, echo; /* its timestamps, if stamped; echo is what the other side has sent */
	u16 window;
	u8 flags, header; /* header: size of the TCP header in bytes */
	u8 v6, stamped, congested;
	u8 wait, waited; /* 1 + the enum wait that went on before it, and the side; 0: no wait, or a wait for data */
	u8 again, news;  /* it came again although nothing was missing, and it acknowledges something new */
	u8 stale;        /* its data was acknowledged before: a keepalive probe, or the sender has lost the acknowledgement */
	u8 stray;
	u8 narrow; /* the sides with a narrow window before it: 1, 2, or both */
};

enum { LOOPBACK = 1 }; /* the index of the loopback in every network namespace (LOOPBACK_IFINDEX, include/net/flow.h) */

enum { PROBE = 0x6c616e65 }; /* SO_PRIORITY of a socket that sends a keepalive probe for the lane; no class of a qdisc has this number */

enum { FIN = 1, SYN = 2, RST = 4, ACK = 16, URG = 32 };

static inline_always u32 state_of(u64 word) { return word & ((1 << STATE_BITS) - 1); }
static inline_always u64 next(u64 word, u32 state) { return (((word >> STATE_BITS) + 1) << STATE_BITS) | state; }
static inline_always u64 load(u64 *p) { return *(volatile u64 *)p; }

/* swap is a compare-and-swap, and a full barrier. */
static inline_always bool swap(u64 *p, u64 from, u64 to) { return __sync_val_compare_and_swap(p, from, to) == from; }

static inline_always bool change(struct session *s, u64 word, u32 state) { return swap(&s->word, word, next(word, state)); }

/* raise makes a number that never falls at least n. If it fails, other CPUs have raised the number eight times
 * meanwhile. */
static inline_always bool raise(u64 *p, u64 n)
{
	for (int i = 0; i < 8; i++) {
		u64 old = load(p);
		if (old >= n || swap(p, old, n))
			return true;
	}
	return false;
}

/* raise_stamp is raise for timestamps, which wrap around. */
static inline_always void raise_stamp(u32 *p, u32 n)
{
	for (int i = 0; i < 8; i++) {
		u32 old = *(volatile u32 *)p;
		if ((s32)(n - old) <= 0 || __sync_val_compare_and_swap(p, old, n) == old)
			return;
	}
}

#endif

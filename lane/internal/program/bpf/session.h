/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* The memory that the programs share with user space, and what they read of a packet. */
#ifndef SESSION_H
#define SESSION_H

#include "kernel.h"
#include "state.h"

/* A tuple is the addresses of a packet that arrives from an endpoint. An IPv4 address is mapped
 * into IPv6. Ports are in network byte order. */
struct tuple {
	u32 remote[4], local[4];
	u16 remote_port, local_port;
};

/* A place is where a tuple's session is. */
struct place {
	u32 slot;
	u32 generation;
	u32 side;
};

/* A row has the places of some hashes, as many as a line of the cache has. */
enum { ROW = 16 };

struct row {
	u32 place[ROW];
};

/* Flags of half.noted, above the number. */
#define NOTED (1ULL << 32)
#define NOTED_RESET (1ULL << 33)
#define NOTED_LOST (1ULL << 34) /* a note could not be made: the session does not leave until that is forgotten */
#define NOTED_BIG (1ULL << 35)  /* a packet above 64 KiB, of big TCP: the session never leaves again */

/* Of an endpoint whose socket was made anew. */
enum behind {
	LAGS = 1,     /* it may have bytes up to reach that the socket has not sent */
	OWES_END = 2, /* it has ended in the lane, and the socket does not know */
};

/* A half has the packets that arrive from one endpoint. Positions count from the moment of leaving, see
 * lane/internal/translate. */
/* The time of a session passes in ticks of 2^17 ns. Each counts once, for one side, and of it for one of these: */
enum wait {
	WAIT_ANSWER, /* for its data, after data of the other side */
	WAIT_MORE,   /* for its data, after data of its own */
	WAIT_WINDOW, /* for its window, which held less than a segment */
	WAIT_ACK,    /* for its acknowledgement, after which the other side went on at once */
	WAIT_FLIGHT, /* for the other side's data, with more than a segment on the way to it */
	WAIT_GAP,    /* for data of its own that is missing here */
	WAIT_AGAIN,  /* for the other side to send again, and then for its acknowledgement */
	WAITS,
};

enum { ORDINARY = 1460 }; /* bytes of a segment of Ethernet */

enum { LATE = 1 << 20 };

enum { TICK = 17, QUIET = 2000000000 >> TICK, AT_ONCE = 8, NARROW = 3 };

struct half {
	u64 noted; /* the end of data that was let up */
	u64 sent, acked, edge, fin;
	u64 packets;
	u64 asked, nudged; /* ktime of the packet of this side whose echo is waited for, with data and without, or 0 */
	u64 payload; /* bytes of data, also of those that came again */
	u64 hole; /* the position after the first byte that was missing when a packet last came behind a gap, or 0 */
	u32 first, first_ack;
	u32 sequence, time; /* added to sequence numbers and timestamps */
	u32 device;         /* where packets of this side arrive, and those to it leave */
	u32 stamp, asked_stamp, nudged_stamp; /* the highest timestamp, and those of the packets whose echo is waited for */
	u32 window;             /* the last, in bytes */
	u32 zeros, repeats;     /* how often the window became 0, and segments that came again */
	u32 reach;              /* the number after all that the lane has carried to the endpoint, if behind */
	u32 rtt, least_rtt;     /* from here to the endpoint and back, in us, plus 1; 0: not known */
	u32 data_rtt;           /* the same until the endpoint sends data, with its own pauses */
	u32 segments;           /* packets with data */
	u32 behind_gap, lost;   /* those that came behind a gap, and those that came again though none was missing here */
	u32 answers, pauses;    /* the waits of WAIT_ANSWER and of WAIT_MORE */
	u32 waits[WAITS];       /* by enum wait, in ticks */
	u32 widest, narrow;     /* the largest window so far, in bytes, and the ticks in which too little of it was left (wait.h) */
	struct tuple in;
	u16 takes, gives; /* the largest segment that the endpoint takes, and that it may send */
	u8 scale, unit;   /* shifts of windows that arrive, and that leave to the other side */
	u8 timestamps, v6, sack;
	u8 ecn;      /* both ends have agreed on it */
	u8 restored; /* the socket was made anew */
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
	u64 begun, spent_before; /* ktime of the last flip, and for how long the session was in the lane before */
	u32 pending, acked; /* the wait that goes on, and the part of it that the last acknowledgement has ended, in ticks */
	u32 generation;
	enum why why; /* why the last claim was given up, enum why */
	u32 tries;
	u8 looped; /* both endpoints are reached over the loopback */
	u8 reset;  /* an RST has passed */
	u8 ends;   /* the owner has stopped the session to reset it */
	u8 spoke;  /* 1 and the side that has sent data last; 0: none has */
	u8 ended_by; /* 1 and the side of the RST that has passed, or else of the first FIN; 0: there was none */
	u8 newest; /* 1 and the side that new bytes have come from last; 0: none have */
	u8 shut;   /* a bit for each side whose endpoint sees a window of 0, or of both none beyond held, in user space alone */
	u8 opens;  /* a bit for the side whose socket is sending a probe that announces its window */
	u8 stalled; /* 1 and the side that has sent again what the other one has not acknowledged since; 0: none has */
	u8 reported; /* user space's: its end was reported */
	u8 unused[2];
	u32 held[2]; /* the number up to which the endpoint of a side may send while both are shut, or 0: it is not known yet */
	u32 user_timeout; /* user space's alone, as are keepalive, tag and joined: in ms and 1 more; 0: the session has none of its own */
	u32 keepalive;    /* in the same way */
	struct half half[2];
	u8 tag[80]; /* its owner's, for the next process */
	u64 joined; /* ktime of its begin, in ns */
};

struct event {
	u32 slot, generation, state, reset;
};

/* A packet is what is read of one. */
struct packet {
	struct tuple key;
	u64 now; /* ktime at which it is carried */
	u32 sequence, ack, length;
	u32 time, echo; /* its timestamps, if stamped; the echo as the other side has sent it */
	u16 window;
	u8 flags, header; /* header: bytes of the TCP header */
	u8 v6, stamped, congested;
	u8 wait, waited; /* 1 and the enum wait that the session was in before it, and the side; 0: none of those that last */
	u8 again, news;  /* it came again though nothing was missing, and it acknowledges something new */
	u8 stale;        /* its data was acknowledged before: a keepalive probe, or the sender has lost the acknowledgement */
	u8 stray;
	u8 narrow; /* the sides whose windows were narrow before it: 1, 2, or both */
};

enum { LOOPBACK = 1 }; /* its index in every network namespace (LOOPBACK_IFINDEX, include/net/flow.h) */

enum { PROBE = 0x6c616e65 }; /* SO_PRIORITY of a socket that sends a keepalive probe for the lane: no class of a qdisc */

enum { FIN = 1, SYN = 2, RST = 4, ACK = 16, URG = 32 };

static inline_always u32 state_of(u64 word) { return word & ((1 << STATE_BITS) - 1); }
static inline_always u64 next(u64 word, u32 state) { return (((word >> STATE_BITS) + 1) << STATE_BITS) | state; }
static inline_always u64 load(u64 *p) { return *(volatile u64 *)p; }

/* swap is a compare-and-swap, and a full barrier. */
static inline_always bool swap(u64 *p, u64 from, u64 to) { return __sync_val_compare_and_swap(p, from, to) == from; }

static inline_always bool change(struct session *s, u64 word, u32 state) { return swap(&s->word, word, next(word, state)); }

/* raise has a number that never falls be n at least. Where it fails, other CPUs have raised it
 * eight times meanwhile. */
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

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* Written by go test ./lane/internal/state -run TestHeader -update. DO NOT EDIT. */
#ifndef STATE_H
#define STATE_H

enum state {
	STATE_FREE = 0,
	STATE_USER = 1,
	STATE_ARMED = 2,
	STATE_CLAIMED = 3,
	STATE_LANE = 4,
	STATE_DONE = 5,
	STATE_HELD = 6,
	STATE_RESET = 7,
};

enum { STATE_BITS = 8 };

/* Which actor may change the state from one to another. */
#define MAY_OWNER_FREE_TO_USER 1
#define MAY_OWNER_USER_TO_FREE 1
#define MAY_OWNER_USER_TO_ARMED 1
#define MAY_OWNER_ARMED_TO_USER 1
#define MAY_INGRESS_ARMED_TO_CLAIMED 1
#define MAY_EGRESS_ARMED_TO_USER 1
#define MAY_CLAIMER_CLAIMED_TO_LANE 1
#define MAY_CLAIMER_CLAIMED_TO_USER 1
#define MAY_INGRESS_CLAIMED_TO_USER 1
#define MAY_EGRESS_CLAIMED_TO_USER 1
#define MAY_OWNER_CLAIMED_TO_USER 1
#define MAY_INGRESS_LANE_TO_DONE 1
#define MAY_OWNER_LANE_TO_HELD 1
#define MAY_OWNER_HELD_TO_USER 1
#define MAY_OWNER_HELD_TO_LANE 1
#define MAY_OWNER_HELD_TO_DONE 1
#define MAY_OWNER_HELD_TO_RESET 1
#define MAY_OWNER_DONE_TO_RESET 1
#define MAY_OWNER_DONE_TO_FREE 1
#define MAY_OWNER_RESET_TO_FREE 1

#endif

package admin

import (
	"context"
	"errors"
)

// A Lane holds the sessions that have left user space: the kernel forwards their packets.
type Lane struct {
	// State is opening (while the process starts), on, off (an operator has switched the lane off until the process
	// ends), busy (another process still has the lane; this one tries again) or unavailable.
	State string `json:"state"`
	Why   string `json:"why,omitempty"` // why the state is not on
	// Whether a listener has lane: auto or require.
	Wanted bool `json:"wanted" metric:"wanted"`
	// PinsProblem says why sessions in the lane would not survive the death of the process, although lane.pins is set:
	// files are missing.
	PinsProblem string   `json:"pins_problem,omitempty"`
	Devices     []string `json:"devices,omitempty"` // network devices at which the lane forwards packets
	// Sessions in the lane now.
	Active int64 `json:"active" metric:"sessions"`
	GoOn   int64 `json:"go_on,omitempty"` // sessions in the lane that will continue without this draining process (lane.leave)
	// Places for sessions in the lane; an adopted table keeps its size.
	Most int64 `json:"most" metric:"sessions_limit"`
	// Sessions that have left user space.
	Left int64 `json:"left" metric:"left_total"`
	// Sessions with a place in the lane that have ended.
	Ended int64 `json:"ended" metric:"ended_total"`
	// Sessions of penstock_lane_ended_total that were reset.
	Reset int64 `json:"reset" metric:"reset_total"`
	// Sessions in the lane that were adopted from an earlier process.
	Adopted int64 `json:"adopted,omitempty" metric:"adopted_total"`
	// Sessions that have come back to user space.
	Returned int64 `json:"returned,omitempty" metric:"returned_total"`
	// Times that a flow was paused so that it could leave.
	Gaps   int64 `json:"gaps,omitempty" metric:"gaps_total"`
	Failed int64 `json:"failed,omitempty"` // failures: sockets that could not be closed silently, ports that are not reserved, and damaged records of adopted sessions, which end these sessions
	// Sessions that could not leave user space, by reason; each attempt counts.
	Stays map[string]int64 `json:"stays,omitempty" metric:"stays_total,reason"`
	// Sessions that could not come back and were reset, by reason.
	Unrestored map[string]int64 `json:"unrestored,omitempty" metric:"unrestored_total,reason"`
}

// The states of a [Lane].
const (
	LaneOn          = "on"
	LaneOff         = "off"
	LaneOpening     = "opening"
	LaneBusy        = "busy"
	LaneUnavailable = "unavailable"
)

// ErrLeft is wrapped by the error of a change to the lane once the process drains with lane.leave: its sessions
// continue without the process.
var ErrLeft = errors.New("the process drains with lane.leave")

// Trouble says why sessions of listeners with lane stay in user space, and what to do. It returns "" if nothing has to
// be done.
func (l *Lane) Trouble() string {
	switch {
	case !l.Wanted:
		return ""
	case l.State == LaneBusy:
		return "sessions stay in user space: " + l.Why + ": once that process has ended, this one opens the lane, and takes over sessions that go on in it. If no process has it, remove its pins"
	case l.State == LaneUnavailable:
		return "sessions stay in user space, because there is no lane (" + l.Why + "): repair what penstock doctor and penstock check report, and reload"
	}
	return ""
}

// PinsTrouble says why sessions in the lane would not survive the process, and what to do. It returns "" if they would,
// or if no pins are wanted.
func (l *Lane) PinsTrouble() string {
	if l.PinsProblem == "" {
		return ""
	}
	return "sessions in the lane end if the process dies: files of lane.pins are missing or damaged (" + l.PinsProblem + "). Remove the remaining files in that directory: the process makes all files again within seconds. If the directory is gone, restart the process"
}

// LaneChanged is the answer to a change of the lane by hand.
type LaneChanged struct {
	State    string `json:"state"`    // state of the [Lane] now
	Changed  bool   `json:"changed"`  // false if the lane was on or off before, as requested
	Returned int    `json:"returned"` // sessions that have come back to user space
	Reset    int    `json:"reset"`    // sessions in the lane that are being reset
}

// A LaneSwitcher switches the lane.
type LaneSwitcher interface {
	// SwitchLane allows or forbids sessions to leave user space, until the process ends. ReturnLane brings back the
	// sessions that have left. It resets sessions of an earlier process, and sessions that cannot come back. FlushLane
	// resets all sessions that have left. Their errors wrap [ErrNotFound] without a lane, and [ErrLeft] if its sessions
	// continue without this process.
	SwitchLane(on bool, by string) (LaneChanged, error)
	ReturnLane(by string) (LaneChanged, error)
	FlushLane(by string) (LaneChanged, error)
}

// SwitchLane allows or forbids sessions to leave user space, until the process ends.
func (c *Client) SwitchLane(ctx context.Context, on bool) (LaneChanged, error) {
	return post[LaneChanged](ctx, c, map[bool]string{true: "/v1/lane/on", false: "/v1/lane/off"}[on])
}

// ReturnLane brings back the sessions that have left user space.
func (c *Client) ReturnLane(ctx context.Context) (LaneChanged, error) {
	return post[LaneChanged](ctx, c, "/v1/lane/return")
}

// FlushLane resets the sessions that have left user space.
func (c *Client) FlushLane(ctx context.Context) (LaneChanged, error) {
	return post[LaneChanged](ctx, c, "/v1/lane/flush")
}

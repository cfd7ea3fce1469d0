package relay

import (
	"errors"
	"fmt"
)

// Engine says how a direction may move its bytes.
type Engine uint8

const (
	// EngineAuto copies small reads and splices bulk, by the sizes of the direction's last
	// reads.
	EngineAuto Engine = iota
	// EngineSplice splices every read, however small.
	EngineSplice
	// EngineCopy copies every read through a buffer.
	EngineCopy
)

// ErrUnknownEngine is wrapped by [ParseEngine]'s error.
var ErrUnknownEngine = errors.New("unknown engine")

var engineNames = [...]string{EngineAuto: "auto", EngineSplice: "splice", EngineCopy: "copy"}

// String returns "auto", "splice" or "copy".
func (e Engine) String() string {
	if int(e) < len(engineNames) {
		return engineNames[e]
	}
	return fmt.Sprintf("engine(%d)", uint8(e))
}

// ParseEngine returns the engine of that name. Its error wraps
// [ErrUnknownEngine] and names the engines there are.
func ParseEngine(name string) (Engine, error) {
	for e, n := range engineNames {
		if n == name {
			return Engine(e), nil
		}
	}
	return 0, fmt.Errorf("%w %q: write auto, splice or copy", ErrUnknownEngine, name)
}

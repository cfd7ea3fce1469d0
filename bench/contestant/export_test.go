package contestant

// SetPlaces replaces the directories in which servers are looked for besides
// PATH, until the function it returns is called.
func SetPlaces(dirs ...string) (restore func()) {
	before := sbin
	sbin = dirs
	return func() { sbin = before }
}

// LaneOn is the check of a process that is to have a lane.
var LaneOn = laneOn

// AwaitListener waits until a child that is the program listens.
var AwaitListener = awaitListener

package sys

// NetstatCounter is netstatCounter for tests.
var NetstatCounter = netstatCounter

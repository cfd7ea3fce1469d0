package offload

// Send is send for tests.
var Send = send

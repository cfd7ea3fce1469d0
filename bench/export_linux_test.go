package bench

var SplicedNothing = splicedNothing

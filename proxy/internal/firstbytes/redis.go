package firstbytes

import (
	"bytes"
	"slices"
	"strings"
)

// maxInline is the longest inline command that is read.
const maxInline = 1 << 10

// inlineCommands are the inline commands that are recognised: clients may begin with them, and no other protocol
// does.
var inlineCommands = []string{"AUTH", "CLIENT", "COMMAND", "ECHO", "HELLO", "INFO", "PING", "QUIT", "SELECT"}

const longestCommand = len("GEORADIUSBYMEMBER_RO")

// lookRedis recognises an array of bulk strings by the headers of the array and of the first string, and an inline
// command by its first line. (The Redis serialization protocol specification.)
func lookRedis(_ *Recogniser, b []byte, f *Facts) (need int) {
	v := Open
	switch {
	case b[0] == '*':
		need, v = respArray(b)
	case b[0] == ' ' || '\t' <= b[0] && b[0] <= '\r':
		v = Doubt
	default:
		need, v = inline(b)
	}
	if v == Doubt {
		v = f.doubt("the first line may be a Redis command")
	}
	f.verdicts[Redis] = v
	return need
}

// respArray looks for "*2\r\n$4\r\n". Redis ignores the byte after a carriage return. It skips empty arrays, so what
// follows them is in doubt, and so are numbers that only some versions and settings of Redis accept.
func respArray(b []byte) (need int, v Verdict) {
	at := 0
	for _, head := range []struct {
		first  byte
		digits int
	}{{'*', 7}, {'$', 9}} {
		if at == len(b) {
			return at + 1, Open
		}
		if b[at] != head.first {
			return 0, No
		}
		at++
		if head.first == '*' && at < len(b) && (b[at] == '-' || b[at] == '0') {
			return 0, Doubt
		}
		start := at
		for at < len(b) && '0' <= b[at] && b[at] <= '9' {
			at++
		}
		switch n := at - start; {
		case n > head.digits:
			return 0, Doubt
		case n == 0 && at < len(b), n > 1 && b[start] == '0':
			return 0, No
		}
		switch {
		case at == len(b):
			return at + 1, Open
		case b[at] != '\r':
			return 0, No
		case at+1 >= len(b):
			return at + 2, Open
		}
		at += 2
	}
	return 0, Yes
}

// inline looks for a line that begins with an inline command. A word is in doubt if it has quotes, which Redis
// removes, or may be another command.
func inline(b []byte) (need int, v Verdict) {
	word := 0
	for word < len(b) && word <= longestCommand && (isLetter(b[word]) || strings.IndexByte("_-.", b[word]) >= 0) {
		word++
	}
	if word == len(b) {
		return len(b) + 1, Open // the word may go on
	}
	if c := b[word]; c == '"' || c == '\'' {
		return 0, Doubt
	}
	command := strings.ToUpper(string(b[:word]))
	begins := slices.Contains(inlineCommands, command)
	module, _, _ := strings.Cut(command, ".")
	if !begins && !slices.Contains(otherCommands, command) && (module == command || !slices.Contains(modules, module)) || !strings.ContainsRune(" \t\r\n", rune(b[word])) {
		return 0, No
	}
	switch end := bytes.IndexByte(b, '\n'); {
	case end >= 0 && command == "GET" && looksLikeHTTP(b[:end]):
		return 0, No
	case end >= 0 && begins && !looksLikeHTTP(b[:end]):
		return 0, Yes
	case end < 0 && len(b) < maxInline:
		return len(b) + 1, Open
	}
	return 0, Doubt
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// otherCommands are the commands of Redis 8 and of its Sentinel that are not in inlineCommands, in upper case. A line
// with one of them may be an inline command, or a line of another protocol.
var otherCommands = strings.Fields(`
ACL APPEND ASKING BGREWRITEAOF BGSAVE BITCOUNT BITFIELD BITFIELD_RO BITOP BITPOS BLMOVE BLMPOP BLPOP BRPOP BRPOPLPUSH BZMPOP BZPOPMAX
BZPOPMIN CLUSTER CONFIG COPY DBSIZE DEBUG DECR DECRBY DEL DISCARD DUMP EVAL EVALSHA EVALSHA_RO EVAL_RO EXEC EXISTS EXPIRE EXPIREAT
EXPIRETIME FAILOVER FCALL FCALL_RO FLUSHALL FLUSHDB FUNCTION GEOADD GEODIST GEOHASH GEOPOS GEORADIUS GEORADIUSBYMEMBER GEORADIUSBYMEMBER_RO
GEORADIUS_RO GEOSEARCH GEOSEARCHSTORE GET GETBIT GETDEL GETEX GETRANGE GETSET HDEL HEXISTS HGET HGETALL HINCRBY HINCRBYFLOAT HKEYS HLEN
HMGET HMSET HRANDFIELD HSCAN HSET HSETNX HSTRLEN HVALS INCR INCRBY INCRBYFLOAT KEYS LASTSAVE LATENCY LCS LINDEX LINSERT LLEN LMOVE LMPOP
LOLWUT LPOP LPOS LPUSH LPUSHX LRANGE LREM LSET LTRIM MEMORY MGET MIGRATE MODULE MONITOR MOVE MSET MSETNX MULTI OBJECT PERSIST PEXPIRE
PEXPIREAT PEXPIRETIME PFADD PFCOUNT PFDEBUG PFMERGE PFSELFTEST PSETEX PSUBSCRIBE PSYNC PTTL PUBLISH PUBSUB PUNSUBSCRIBE RANDOMKEY READONLY
READWRITE RENAME RENAMENX REPLCONF REPLICAOF RESET RESTORE RESTORE-ASKING ROLE RPOP RPOPLPUSH RPUSH RPUSHX SADD SAVE SCAN SCARD SCRIPT SDIFF
SDIFFSTORE SET SETBIT SETEX SETNX SETRANGE SHUTDOWN SINTER SINTERCARD SINTERSTORE SISMEMBER SLAVEOF SLOWLOG SMEMBERS SMISMEMBER SMOVE SORT
SORT_RO SPOP SPUBLISH SRANDMEMBER SREM SSCAN SSUBSCRIBE STRLEN SUBSCRIBE SUBSTR SUNION SUNIONSTORE SUNSUBSCRIBE SWAPDB SYNC TIME TOUCH TTL
TYPE UNLINK UNSUBSCRIBE UNWATCH WAIT WATCH XACK XADD XAUTOCLAIM XCLAIM XDEL XGROUP XINFO XLEN XPENDING XRANGE XREAD XREADGROUP XREVRANGE
XSETID XTRIM ZADD ZCARD ZCOUNT ZDIFF ZDIFFSTORE ZINCRBY ZINTER ZINTERCARD ZINTERSTORE ZLEXCOUNT ZMPOP ZMSCORE ZPOPMAX ZPOPMIN ZRANDMEMBER
ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZRANGESTORE ZRANK ZREM ZREMRANGEBYLEX ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREVRANGE ZREVRANGEBYLEX
ZREVRANGEBYSCORE ZREVRANK ZSCAN ZSCORE ZUNION ZUNIONSTORE
DELEX DIGEST HEXPIRE HEXPIREAT HEXPIRETIME HGETDEL HGETEX HPERSIST HPEXPIRE HPEXPIREAT HPEXPIRETIME HPTTL HSETEX HTTL MSETEX SENTINEL VADD
VCARD VDIM VEMB VGETATTR VINFO VISMEMBER VLINKS VRANDMEMBER VRANGE VREM VSETATTR VSIM WAITAOF XACKDEL XCFGSET XDELEX
`)

// modules are the prefixes of commands that the modules of Redis Stack add, such as JSON.GET.
var modules = strings.Fields("BF CF CMS FT GRAPH JSON REDISGEARS RG TDIGEST TFCALL TFUNCTION TIMESERIES TOPK TS")

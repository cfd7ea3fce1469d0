package compare

import (
	"bytes"
	"strings"
)

// Names in reports are those of a known set, so that no text of a client, which may be a secret, gets into a report.

// words returns the set of the words of a text.
func words(text string) map[string]bool {
	set := make(map[string]bool)
	for w := range strings.FieldsSeq(text) {
		set[w] = true
	}
	return set
}

// commands are the names of a framing; further ones count as other.
var commands = map[string]map[string]bool{
	Resp: words(`ACL APPEND ASKING AUTH BF.ADD BF.EXISTS BF.INSERT BF.MADD BF.MEXISTS BF.RESERVE BGREWRITEAOF BGSAVE BITCOUNT
		BITFIELD BITFIELD_RO BITOP BITPOS BLMOVE BLMPOP BLPOP BRPOP BRPOPLPUSH BZMPOP BZPOPMAX BZPOPMIN CLIENT CLUSTER
		COMMAND CONFIG COPY DBSIZE DEBUG DECR DECRBY DEL DISCARD DUMP ECHO EVAL EVALSHA EVALSHA_RO EVAL_RO EXEC EXISTS
		EXPIRE EXPIREAT EXPIRETIME FAILOVER FCALL FCALL_RO FLUSHALL FLUSHDB FT.AGGREGATE FT.CREATE FT.INFO FT.SEARCH
		FUNCTION GEOADD GEODIST GEOHASH GEOPOS GEORADIUS GEORADIUSBYMEMBER GEORADIUSBYMEMBER_RO GEORADIUS_RO GEOSEARCH
		GEOSEARCHSTORE GET GETBIT GETDEL GETEX GETRANGE GETSET HDEL HELLO HEXISTS HEXPIRE HEXPIREAT HEXPIRETIME HGET
		HGETALL HGETDEL HGETEX HINCRBY HINCRBYFLOAT HKEYS HLEN HMGET HMSET HPERSIST HPEXPIRE HPEXPIREAT HPEXPIRETIME HPTTL
		HRANDFIELD HSCAN HSET HSETEX HSETNX HSTRLEN HTTL HVALS INCR INCRBY INCRBYFLOAT INFO JSON.DEL JSON.GET JSON.MGET
		JSON.SET KEYS LASTSAVE LATENCY LCS LINDEX LINSERT LLEN LMOVE LMPOP LOLWUT LPOP LPOS LPUSH LPUSHX LRANGE LREM LSET
		LTRIM MEMORY MGET MIGRATE MODULE MONITOR MOVE MSET MSETNX MULTI OBJECT PERSIST PEXPIRE PEXPIREAT PEXPIRETIME PFADD
		PFCOUNT PFDEBUG PFMERGE PFSELFTEST PING PSETEX PSUBSCRIBE PSYNC PTTL PUBLISH PUBSUB PUNSUBSCRIBE QUIT RANDOMKEY
		READONLY READWRITE RENAME RENAMENX REPLCONF REPLICAOF RESET RESTORE ROLE RPOP RPOPLPUSH RPUSH RPUSHX SADD SAVE SCAN
		SCARD SCRIPT SDIFF SDIFFSTORE SELECT SET SETBIT SETEX SETNX SETRANGE SHUTDOWN SINTER SINTERCARD SINTERSTORE
		SISMEMBER SLAVEOF SLOWLOG SMEMBERS SMISMEMBER SMOVE SORT SORT_RO SPOP SPUBLISH SRANDMEMBER SREM SSCAN SSUBSCRIBE
		STRLEN SUBSCRIBE SUBSTR SUNION SUNIONSTORE SUNSUBSCRIBE SWAPDB SYNC TIME TOUCH TS.ADD TS.GET TS.RANGE TTL TYPE
		UNLINK UNSUBSCRIBE UNWATCH WAIT WAITAOF WATCH XACK XADD XAUTOCLAIM XCLAIM XDEL XGROUP XINFO XLEN XPENDING XRANGE
		XREAD XREADGROUP XREVRANGE XSETID XTRIM ZADD ZCARD ZCOUNT ZDIFF ZDIFFSTORE ZINCRBY ZINTER ZINTERCARD ZINTERSTORE
		ZLEXCOUNT ZMPOP ZMSCORE ZPOPMAX ZPOPMIN ZRANDMEMBER ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZRANGESTORE ZRANK ZREM
		ZREMRANGEBYLEX ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREVRANGE ZREVRANGEBYLEX ZREVRANGEBYSCORE ZREVRANK ZSCAN ZSCORE
		ZUNION ZUNIONSTORE`),
	Postgres: words(`ABORT ALTER ANALYZE BEGIN CALL CHECKPOINT CLOSE CLUSTER COMMENT COMMIT COPY CREATE DEALLOCATE DECLARE DELETE
		DISCARD DO DROP END EXECUTE EXPLAIN FETCH GRANT IMPORT INSERT LISTEN LOAD LOCK MERGE MOVE NOTIFY PREPARE REASSIGN
		REFRESH REINDEX RELEASE RESET REVOKE ROLLBACK SAVEPOINT SECURITY SELECT SET SHOW START TABLE TRUNCATE UNLISTEN
		UPDATE VACUUM VALUES WITH`),
	HTTP1: words(`CONNECT COPY DELETE GET HEAD LOCK MKCOL MOVE OPTIONS PATCH POST PROPFIND PROPPATCH PUT QUERY REPORT SEARCH TRACE
		UNLOCK`),
}

// command returns the name of a command: other, if it is neither a known one nor that of a mask, and names are redacted.
func (s *Session) command(text []byte) name {
	if s.plan.redact && !commands[s.plan.framing][string(text)] && !s.plan.named(text) {
		return other
	}
	return s.report.nameOf(text)
}

// named reports whether a mask has a name, which is no secret then.
func (p *Plan) named(text []byte) bool { return p.names[string(text)] }

// method reports whether a method of HTTP may be shown.
func (s *Session) method(method []byte) bool {
	return isWord(method) && len(method) <= wordBytes/2 && (!s.plan.redact || commands[HTTP1][string(method)])
}

// pathName returns the name of requests with a method and the class of their path: its first
// segment, or * where that has other bytes than letters, hyphens and underscores, or is long, or names are redacted and no mask
// has this one.
func (s *Session) pathName(method, target []byte) name {
	if !s.method(method) {
		return other
	}
	var buf [2 * wordBytes]byte
	b := append(append(buf[:0], method...), " /"...)
	target, _, _ = bytes.Cut(target, []byte("?"))
	path, ok := bytes.CutPrefix(target, []byte("/"))
	segment, _, _ := bytes.Cut(path, []byte("/"))
	ok = ok && len(segment) <= wordBytes
	for _, c := range segment {
		ok = ok && (c|0x20 >= 'a' && c|0x20 <= 'z' || c == '-' || c == '_')
	}
	if ok {
		text := append(b, segment...)
		if ok = !s.plan.redact || len(segment) == 0 || s.plan.named(text); ok {
			return s.report.nameOf(text)
		}
	}
	return s.report.nameOf(append(b, '*'))
}

// methodName is the name of requests of gRPC: the path, or /* if names are redacted and no mask has it.
func (s *Session) methodName(path []byte) name {
	for _, c := range path {
		if !isLetter(c) && (c < '0' || c > '9') && c != '.' && c != '_' && c != '/' {
			return other
		}
	}
	switch {
	case len(path) == 0:
		return other
	case s.plan.redact && !s.plan.named(path):
		return s.report.name("/*")
	}
	return s.report.nameOf(path)
}

package holdall

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Position is a place in a database's log, behind a write: a replica that has reached it shows the
// write.
type Position struct {
	kind string
	lsn  uint64
	// domains have the last transaction of each domain of MariaDB.
	domains map[uint32]gtid
	// sets are MySQL's sets of transactions, as they are written; sorted, each once.
	sets []string
}

type gtid struct {
	server uint32
	number uint64
}

// ParsePosition reads "mariadb-gtid:0-1-4711", "mysql-gtid:UUID:23" or "lsn:0/16B3748". The
// queries that give these texts to a writer are in docs/client.md.
func ParsePosition(text string) (Position, error) {
	kind, place, _ := strings.Cut(text, ":")
	p, isPosition := Position{kind: kind}, false
	switch kind {
	case "lsn":
		p.lsn, isPosition = lsn(place)
	case "mariadb-gtid":
		p.domains, isPosition = domains(place)
	case "mysql-gtid":
		p.sets, isPosition = sets(place)
	}
	if !isPosition {
		return Position{}, fmt.Errorf("holdall: %.100q is none of mariadb-gtid:0-1-2, mysql-gtid:UUID:3, lsn:0/16B3748", text)
	}
	return p, nil
}

// String is the text that ParsePosition reads.
func (p Position) String() string {
	return p.kind + ":" + p.InDatabase()
}

// InDatabase is the place as the database itself writes it. It has letters, digits, and "-:,/_"
// only.
func (p Position) InDatabase() string {
	var parts []string
	switch p.kind {
	case "lsn":
		return fmt.Sprintf("%X/%X", p.lsn>>32, p.lsn&0xffffffff)
	case "mariadb-gtid":
		order := make([]uint32, 0, len(p.domains))
		for domain := range p.domains {
			order = append(order, domain)
		}
		slices.Sort(order)
		for _, domain := range order {
			last := p.domains[domain]
			parts = append(parts, fmt.Sprintf("%d-%d-%d", domain, last.server, last.number))
		}
	default:
		parts = p.sets
	}
	return strings.Join(parts, ",")
}

// ReachedQuery is the query that asks a replica whether it has reached the place: one row with one
// column, true or 1 if it has. It does not wait.
func (p Position) ReachedQuery() string {
	switch p.kind {
	case "lsn":
		return "SELECT coalesce(pg_last_wal_replay_lsn() >= '" + p.InDatabase() + "', false)"
	case "mariadb-gtid":
		return "SELECT MASTER_GTID_WAIT('" + p.InDatabase() + "', 0) = 0"
	default:
		return "SELECT GTID_SUBSET('" + p.InDatabase() + "', @@global.gtid_executed)"
	}
}

// behindBoth is the place behind both; nil for places of two kinds of databases.
func (p Position) behindBoth(other Position) *Position {
	if p.kind != other.kind {
		return nil
	}
	both := &Position{kind: p.kind, lsn: max(p.lsn, other.lsn), domains: map[uint32]gtid{}}
	for _, one := range []Position{p, other} {
		for domain, last := range one.domains {
			if present, isThere := both.domains[domain]; !isThere || last.number > present.number {
				both.domains[domain] = last
			}
		}
	}
	both.sets = ordered(slices.Concat(p.sets, other.sets))
	return both
}

func ordered(sets []string) []string {
	slices.Sort(sets)
	return slices.Compact(sets)
}

func lsn(place string) (uint64, bool) {
	high, low, hasBoth := strings.Cut(place, "/")
	upper, isUpper := half(high)
	lower, isLower := half(low)
	return upper<<32 | lower, hasBoth && isUpper && isLower
}

func half(digits string) (uint64, bool) {
	number, err := strconv.ParseUint(digits, 16, 32)
	return number, err == nil && len(digits) <= 8
}

func domains(place string) (map[uint32]gtid, bool) {
	found := map[uint32]gtid{}
	for _, part := range strings.Split(place, ",") {
		numbers := strings.Split(strings.TrimSpace(part), "-")
		if len(numbers) != 3 {
			return nil, false
		}
		domain, no := strconv.ParseUint(numbers[0], 10, 32)
		server, noServer := strconv.ParseUint(numbers[1], 10, 32)
		number, noNumber := strconv.ParseUint(numbers[2], 10, 64)
		if cmp.Or(no, noServer, noNumber) != nil {
			return nil, false
		}
		found[uint32(domain)] = gtid{uint32(server), number}
	}
	return found, true
}

// sets reads "UUID:1-5:7", several with commas between them and line ends behind those, as MySQL
// prints them; with tags from 8.3 on.
func sets(place string) ([]string, bool) {
	var found []string
	for _, part := range strings.Split(place, ",") {
		part = strings.TrimSpace(part)
		server, rest, _ := strings.Cut(part, ":")
		isServer := len(server) == 36 && strings.Trim(server, "0123456789abcdefABCDEF-") == ""
		if !isServer || rest == "" || strings.ContainsFunc(rest, isNoneOfASet) {
			return nil, false
		}
		found = append(found, part)
	}
	return ordered(found), true
}

func isNoneOfASet(letter rune) bool {
	isLetter := 'a' <= letter && letter <= 'z' || 'A' <= letter && letter <= 'Z'
	return !isLetter && !('0' <= letter && letter <= '9') && !strings.ContainsRune("-:_", letter)
}

package holdall

import "sync"

// flight is a load that goes on in this process, or a wait for another process's. Its outcome may
// be read when done is closed.
type flight struct {
	done     chan struct{}
	finished bool
	value    []byte
	current  bool
	err      error
	// givenUp: there is no outcome; whoever waits asks the cache again.
	givenUp bool
	// leaders ask the cache or load; loaders are those of them who load. The cache may give the
	// lease to another caller than the one that polls.
	leaders, loaders int
}

// flights has the flights of a client, by key.
type flights struct {
	mutex sync.Mutex
	byKey map[string]*flight
}

// join joins the key's flight unless it is old; or else begins one, and tells that.
func (f *flights) join(key string, old *flight) (*flight, bool) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if present := f.byKey[key]; present != nil && present != old {
		return present, false
	}
	return f.begin(key), true
}

// lead leads the key's flight, or begins one: the cache has chosen this caller to load.
func (f *flights) lead(key string) *flight {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if present := f.byKey[key]; present != nil {
		present.leaders++
		return present
	}
	return f.begin(key)
}

// load says that one of the leaders loads from now on.
func (f *flights) load(own *flight) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	own.loaders++
}

func (f *flights) begin(key string) *flight {
	if f.byKey == nil {
		f.byKey = map[string]*flight{}
	}
	begun := &flight{done: make(chan struct{}), leaders: 1}
	f.byKey[key] = begun
	return begun
}

// detach keeps later callers from the key's present flight: the key is being written.
func (f *flights) detach(key string) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	delete(f.byKey, key)
}

// finish ends a leader's part in its flight, and the flight: with a value; with an error, unless
// another one loads; given up, if it was the last. The first outcome counts.
func (f *flights) finish(key string, own *flight, loads bool, outcome flight) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	own.leaders--
	if loads {
		own.loaders--
	}
	if outcome.givenUp && own.leaders > 0 || outcome.err != nil && own.loaders > 0 || own.finished {
		return
	}
	if f.byKey[key] == own {
		delete(f.byKey, key)
	}
	own.finished = true
	own.value, own.current = outcome.value, outcome.current
	own.err, own.givenUp = outcome.err, outcome.givenUp
	close(own.done)
}

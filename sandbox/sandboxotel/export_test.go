package sandboxotel

// Held returns how many lives o remembers, under all the names that it knows them by.
func (o *Observer) Held() int {
	o.lives.mu.Lock()
	defer o.lives.mu.Unlock()
	return len(o.lives.byNonce) + len(o.lives.byID) + len(o.lives.guests) + len(o.lives.kept)
}

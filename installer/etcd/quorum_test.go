package etcd

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/quorum"

	"airlift/internal/fault"
)

// TestRestartKeepsQuorum compares CheckRestart and Spares with etcd's own majority, for every set of
// up to seven members of which some are down, with and without a learner.
func TestRestartKeepsQuorum(t *testing.T) {
	won := func(states []State, without uint64) bool {
		config, votes := quorum.MajorityConfig{}, map[uint64]bool{}
		for _, s := range states {
			if !s.Learner {
				config[s.ID] = struct{}{}
				votes[s.ID] = s.Err == nil && s.ID != without
			}
		}
		return config.VoteResult(votes) == quorum.VoteWon
	}
	for n := 1; n <= 7; n++ {
		for down := range 1 << n {
			for _, learner := range []bool{false, true} {
				states := membersDown(n, down)
				if learner {
					states = append(states, State{Member{ID: 99, Learner: true}, errors.New("it has not started yet")})
				}
				for i := range n {
					own := states[i].Member
					keeps := won(states, own.ID)
					if got := Spares(states, own.ID); got != keeps {
						t.Errorf("%d members, down %b, %s restarts: Spares is %t", n, down, own.Name, got)
					}
					othersDown := down&^(1<<i) != 0
					refused := won(states, 0) && !keeps && othersDown
					if err := checkRestart(states, own); (err != nil) != refused {
						t.Errorf("%d members, down %b, %s restarts: %v", n, down, own.Name, err)
					} else if err != nil && !strings.Contains(fault.Hint(err), "./install etcd member remove 000000000000000") {
						t.Errorf("the hint is %q", fault.Hint(err))
					}
				}
			}
		}
	}
	if Spares([]State{{Member: Member{ID: 1}}, {Member: Member{ID: 2}}}, 3) {
		t.Error("a member that is not in the list is spared")
	}
}

// TestRemovalKeepsQuorum compares Without with etcd's own majority, for every set of up to seven members
// of which some are down, with and without a learner.
func TestRemovalKeepsQuorum(t *testing.T) {
	won := func(states []State, without uint64) bool {
		config, votes := quorum.MajorityConfig{}, map[uint64]bool{}
		for _, s := range states {
			if !s.Learner && s.ID != without {
				config[s.ID] = struct{}{}
				votes[s.ID] = s.Err == nil
			}
		}
		return config.VoteResult(votes) == quorum.VoteWon
	}
	for n := 1; n <= 7; n++ {
		for down := range 1 << n {
			for _, learner := range []bool{false, true} {
				states := membersDown(n, down)
				if learner {
					states = append(states, State{Member{ID: 99, Learner: true}, errors.New("it has not started yet")})
				}
				for _, s := range states {
					allowed := n == 1 || s.Learner || won(states, 0) && won(states, s.ID)
					rest, err := Without(states, s.Member)
					if (err == nil) != allowed {
						t.Errorf("%d members, down %b, without %d: %v", n, down, s.ID, err)
					}
					voters := 0
					for _, o := range states {
						if !o.Learner && o.ID != s.ID {
							voters++
						}
					}
					if wins := rest.Healthy >= rest.Quorum; rest.Members != voters || voters > 0 && wins != won(states, s.ID) {
						t.Errorf("%d members, down %b, without %d: %+v", n, down, s.ID, rest)
					}
				}
			}
		}
	}
}

// membersDown returns n members, of which those in the bit set down are unhealthy.
func membersDown(n, down int) (states []State) {
	for i := range n {
		s := State{Member: Member{ID: uint64(i + 1), Name: fmt.Sprint("host", i+1)}}
		if down&(1<<i) != 0 {
			s.Err = errors.New("down")
		}
		states = append(states, s)
	}
	return states
}

// TestFindByAnyPeerURL: etcd sorts the peer URLs of a member.
func TestFindByAnyPeerURL(t *testing.T) {
	members := []Member{{ID: 1, PeerURL: "https://10.0.0.1:2380", peerURLs: []string{"https://10.0.0.1:2380", "https://[fd00::1]:2380"}}}
	if m, found := Find(members, "https://[fd00::1]:2380"); !found || m.ID != 1 {
		t.Errorf("%v %t", m, found)
	}
}

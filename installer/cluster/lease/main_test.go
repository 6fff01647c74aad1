package lease

import (
	"testing"

	"airlift/scripts/testcluster"
)

func TestMain(m *testing.M) { testcluster.Main(m) }

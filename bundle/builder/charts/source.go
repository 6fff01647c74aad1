package charts

// source loads the chart and its dependencies.
func (c *Client) source(want Chart) (source, error) {
	s, err := c.load(want)
	if err != nil {
		return s, err
	}
	if err := installable(s.chart); err != nil {
		return s, err
	}
	if err := c.complete(s.chart, s.dir, 0); err != nil {
		return s, err
	}
	return s, checkFiles(s.chart)
}

"""When a PC is there: planned uptime, calendars, alarms and announcements."""

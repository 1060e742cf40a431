"""What people see of a DaVinci launch: figures, advice, tables, a trace and a page.

Everything here is made from a `Timeline` (what the timing simulation found out), the scheduled
`Program` it ran, and the kernel's source; nothing here simulates.
"""

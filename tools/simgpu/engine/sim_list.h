/* list: an intrusive doubly linked list. A head is a link that points at itself when the list is empty. */
#ifndef SIMGPU_LIST_H
#define SIMGPU_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct link {
    struct link *prev, *next;
};

#define LIST_ITEM(pointer, type, member) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

static inline void list_init(struct link *head)
{
    head->prev = head->next = head;
}

static inline bool list_empty(const struct link *head)
{
    return head->next == head;
}

static inline void list_append(struct link *head, struct link *item)
{
    item->prev = head->prev;
    item->next = head;
    head->prev->next = item;
    head->prev = item;
}

static inline void list_remove(struct link *item)
{
    item->prev->next = item->next;
    item->next->prev = item->prev;
    item->prev = item->next = item;
}

#endif

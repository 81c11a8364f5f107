/* page_assets: the files of the folder page/, for page.c. */
    .section .rodata

    .global page_style
    .type page_style, %object
page_style:
    .incbin "page.css"
    .byte 0
    .size page_style, . - page_style

    .global page_body
    .type page_body, %object
page_body:
    .incbin "page.html"
    .byte 0
    .size page_body, . - page_body

    .global page_code
    .type page_code, %object
page_code:
    .incbin "page_data.js"
    .incbin "page_lanes.js"
    .incbin "page_draw.js"
    .incbin "page_moment.js"
    .incbin "page_main.js"
    .byte 0
    .size page_code, . - page_code

    .section .note.GNU-stack, "", %progbits
